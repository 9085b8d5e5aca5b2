"""What combinations of the sums give away: who is isolated, and the weak level, each with its proof."""
