"""What edgekit answers, as it was recorded: a difference here is a change of behaviour."""
