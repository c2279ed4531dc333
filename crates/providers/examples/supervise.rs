//! The supervisor alone, for this crate's tests: `supervise supervise --dir DIR`, as `parhelia` takes it.

use std::path::Path;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let code = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["supervise", "--dir", dir] => parhelia_providers::supervise::run(Path::new(dir)),
        _ => 2,
    };
    std::process::exit(code);
}
