"""Accepting exports, on the event loop or in a thread."""
