//! Replays of what a real server answered, and laws that hold for every object.
