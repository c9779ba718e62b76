//! Rules against second implementations.
