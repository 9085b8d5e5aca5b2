"""Pictures for people, drawn from records only: any figure can be made again from its record."""
