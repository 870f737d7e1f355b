//! The page in a browser. What the browser does stands in `ui/e2e`. It needs Node with npm, and chromium.

use std::process::Command;

/// Runs a program in `ui`, and returns its output.
///
/// # Panics
/// Where it fails, with what it printed.
#[track_caller]
pub fn runs(program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let mut command = Command::new(program);
    command.current_dir(crate::root().join("ui")).args(arguments).envs(environment.iter().copied());
    // Node's own marks of a test that runs tests.
    let output = command.env_remove("NODE_TEST_CONTEXT").output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{arguments:?}: {said}\n{}", String::from_utf8_lossy(&output.stderr));
    said.into_owned()
}

/// Runs these tests in the browser: a file of `ui/e2e`, and of those in it the ones that have a word in their name.
///
/// # Panics
/// Where one fails, and where there is none.
#[track_caller]
pub fn browse(file: &str, word: &str, environment: &[(&str, &str)]) {
    // The page's packages, once for all.
    runs("./build", &["--check"], &[]);
    let (word, file) = (format!("--test-name-pattern={word}"), format!("e2e/{file}.test.mjs"));
    let said = runs("node", &["--test", "--test-reporter=tap", &word, &file], environment);
    let passed = said.lines().find_map(|line| line.strip_prefix("# pass ")).and_then(|count| count.parse().ok());
    assert!(passed > Some(0), "{word} in {file} tests nothing: {said}");
}
