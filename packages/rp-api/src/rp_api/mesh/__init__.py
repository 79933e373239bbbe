"""The messaging mesh: event loop, message codec, keys, channels and the bridges that join them across processes."""
