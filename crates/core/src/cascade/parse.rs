//! Reading a cascade file, and every mistake in it with its place.
