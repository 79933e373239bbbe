"""How ranks are started: a class for each program that launches them, from fork to Flux."""
