//! The description of the API, as a validator of others reads it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tapdex_server::http::openapi_document;

/// The interpreter that has the validator, if it is not the usual one: that of an environment.
fn python() -> String {
    std::env::var("TAPDEX_OPENAPI_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

fn validate(folder: &Path, document: &Value) -> Output {
    let path = folder.join("openapi.json");
    std::fs::write(&path, document.to_string()).unwrap();
    let mut command = Command::new(python());
    command.args(["-m", "openapi_spec_validator"]).arg(path).output().unwrap()
}

#[test]
fn a_validator_takes_the_description() {
    let has = Command::new(python()).args(["-c", "import openapi_spec_validator"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        let what = "openapi_spec_validator (pip install openapi-spec-validator)";
        println!("skipped: {} has no {what}", python());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let document = openapi_document();
    let output = validate(folder.path(), &document);
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    // It notices what is wrong.
    let mut wrong = document;
    wrong["paths"]["/api/v1/count"]["get"]["parameters"][0]["in"] = json!("nowhere");
    assert!(!validate(folder.path(), &wrong).status.success());
}
