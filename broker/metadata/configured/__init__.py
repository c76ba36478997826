"""What the settings of the node that is asked add to the rules of group 0."""
