//! `nearcast-agent`: what an appliance needs more privileges for, behind a Unix socket.

fn main() {}
