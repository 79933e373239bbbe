"""The messaging mesh: event loop, message codec, keys, connections, and the bridge (`tree`) that joins processes."""
