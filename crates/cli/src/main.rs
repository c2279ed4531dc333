use std::path::PathBuf;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    if a[1] == "supervise" { std::process::exit(parhelia_providers::supervise::run(&PathBuf::from(&a[3]))); }
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let config = parhelia_core::config::Config::parse(&std::fs::read_to_string("/tmp/ph.toml").unwrap_or_default()).unwrap();
    let rt = tokio::runtime::Runtime::new().unwrap();
    let o = parhelia_server::serve::ServeOptions { home: "/tmp/ph".into(), listen: Some("127.0.0.1:7717".parse().unwrap()), on_demand: false, config, supervisor: std::env::current_exe().unwrap() };
    println!("{:?}", rt.block_on(parhelia_server::serve::serve(o, |r| println!("{r:?}"))));
}
