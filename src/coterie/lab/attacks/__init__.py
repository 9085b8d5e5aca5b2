"""The adversary: what a server can make of the rounds that it has seen.

`view` is all that an attack may read, `disaggregation` takes sums apart into users' updates, `inversion` turns an
update into the images that it was made from, and `score` says how good that was. `deviation` is a server that
breaks the rules, against devices that keep them. `attack` and `demonstration` put these together for
`coterie attack`.

In: a `ServerView`: who took part, mean updates, global models.
Out: estimates of the users' updates and images, and how near they came.
"""
