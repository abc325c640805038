//! Random work over losses of power.
