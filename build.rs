//! Compiles the one file of C: a setting of the allocator has to be made before `main`, and takes no `unsafe` there.

fn main() {
    println!("cargo::rerun-if-changed=src/core/allocator.c");
    // glibc's allocator is that of Linux, and so are the words to this linker.
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system != "linux") {
        return;
    }
    cc::Build::new().file("src/core/allocator.c").cargo_metadata(false).compile("decklog_allocator");
    // Nothing of it is called, so the linker is told to keep it.
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    println!("cargo::rustc-link-arg-bin=decklog={out}/libdecklog_allocator.a");
    println!("cargo::rustc-link-arg-bin=decklog=-Wl,--undefined=decklog_allocator_is_set");
}
