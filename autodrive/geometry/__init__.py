"""Box conventions, frames of reference and camera projection."""
