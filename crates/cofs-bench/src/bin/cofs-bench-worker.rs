//! A worker of a bench: what a library's user starts where it has no program of its own to start anew.

fn main() -> std::io::Result<()> {
    cofs_bench::work()
}
