//! Compiles the one file of C: the allocator has to be set up before `main`, and takes no `unsafe` there. Asks for the stack that
//! the main thread has on Linux.

fn main() {
    println!("cargo::rerun-if-changed=src/core/allocator.c");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_OS", "windows") && is("CARGO_CFG_TARGET_ENV", "msvc") {
        // It has an eighth of that on Windows, where the linker says how much.
        println!("cargo::rustc-link-arg-bin=decklog=/STACK:8388608");
    }
    // glibc's allocator is that of Linux, and so are the words to this linker.
    if !is("CARGO_CFG_TARGET_OS", "linux") {
        return;
    }
    cc::Build::new().file("src/core/allocator.c").cargo_metadata(false).compile("decklog_allocator");
    // Nothing of it is called, so the linker is told to keep it. Benches measure what the program does.
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    for target in ["bin=decklog", "benches"] {
        println!("cargo::rustc-link-arg-{target}={out}/libdecklog_allocator.a");
        println!("cargo::rustc-link-arg-{target}=-Wl,--undefined=decklog_allocator_is_set");
    }
}
