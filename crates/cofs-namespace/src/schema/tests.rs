//! Tests of the codecs.
