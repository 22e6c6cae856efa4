//! Tests of protobuf bodies, with what Kubernetes' own serializers made of the same objects.

use super::*;

/// In turns: an object in protobuf, in base64, and the same in JSON.
const SAMPLES: &str = include_str!("samples.txt");

fn samples() -> Vec<(Vec<u8>, Value)> {
    let lines: Vec<&str> = SAMPLES.lines().collect();
    let pairs = lines.chunks_exact(2).map(|pair| {
        let body = STANDARD.decode(pair[0]).expect("base64");
        (body, serde_json::from_str(pair[1]).expect("JSON"))
    });
    pairs.collect()
}

#[test]
fn objects_are_read_as_the_json_they_mean() {
    assert_eq!(samples().len(), 5);
    for (body, json) in samples() {
        assert_eq!(decode(&body), Ok(json));
    }
}

#[test]
fn a_body_that_is_cut_is_refused_or_smaller_but_never_the_whole() {
    // After the object come two empty strings about its form.
    const FORM: usize = 4;
    for (body, json) in samples() {
        for length in 0..body.len() - FORM {
            assert_ne!(decode(&body[..length]).as_ref(), Ok(&json), "cut after {length}");
        }
    }
}

#[test]
fn what_is_no_protobuf_of_a_known_kind_is_named() {
    assert!(decode(b"{}").is_err_and(|why| why.contains("prefix")));
    let job = b"k8s\0\x0a\x0f\x0a\x08batch/v9\x12\x03Job";
    assert_eq!(decode(job), Err("no kind batch/v9.Job is known".to_owned()));
}

#[test]
fn every_type_of_the_table_is_in_it() {
    let known = ["string", "bool", "int", "bytes", "quantity", "time", "microtime"];
    let known = [
        &known[..],
        &["double", "intorstring", "texts", "raw", "schemaorbool", "schemaorlist", "schemaortexts"],
    ]
    .concat();
    for line in MESSAGES.lines().filter(|line| !line.starts_with('#')) {
        let (_, fields) = line.split_once(':').expect("a name");
        for field in fields.split(", ").filter(|field| !field.trim().is_empty()) {
            let kind = field.rsplit(' ').next().unwrap_or_default();
            let kind = kind.trim_start_matches(['[', ']', '{', '}', '*']);
            let found = MESSAGES.contains(&format!("\n{kind}:"));
            assert!(found || known.contains(&kind), "{line}: {kind}");
        }
    }
}
