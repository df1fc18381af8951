//! A model that writes a text.
