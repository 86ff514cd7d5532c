"""Speed, measured beside its peers: what `albertine bench` runs."""
