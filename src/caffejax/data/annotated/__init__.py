"""Images with boxes, as the SSD fork keeps them in databases, and what it does to both before a net sees them."""
