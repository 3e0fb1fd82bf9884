//! One CPU core of an appliance.
