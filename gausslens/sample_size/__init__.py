"""How many images a network needs before it stops memorising, and how long it may train: `gausslens how-many`."""
