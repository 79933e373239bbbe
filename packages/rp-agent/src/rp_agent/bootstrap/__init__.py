"""How an agent comes to life on its nodes, once stage 0 (`bootstrap_0.sh`, which the client sends) has found Python."""
