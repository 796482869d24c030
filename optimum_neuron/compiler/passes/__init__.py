"""Named passes over programs: outline, stretch, auto-cast, verify. Each is a function with its own module."""
