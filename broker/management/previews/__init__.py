"""What a change would touch, worked out before it is made."""
