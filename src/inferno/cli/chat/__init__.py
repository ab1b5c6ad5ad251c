"""What `inferno play` is made of."""
