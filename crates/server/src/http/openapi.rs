//! The API, described for programs: OpenAPI 3.1.

use serde_json::{Value, json};

use super::{Endpoint, ROUTES};

/// The parameters of every question.
const QUESTION: [(&str, &str, &str); 7] = [
    ("q", "string", "Filter, as in tcpdump or Wireshark; without one, all packets match"),
    ("syntax", "string", "Language of the filter: pcap, wireshark or auto"),
    (
        "from",
        "string",
        "Only packets from this time on: RFC 3339, seconds since 1970, -15m, 3h ago",
    ),
    ("to", "string", "Only packets from before this time"),
    ("utc", "boolean", "Times without a zone are UTC; they always are"),
    ("through_tags", "boolean", "Also look behind one or two VLAN tags"),
    ("reason", "string", "Why this is asked, for the audit log"),
];

/// What an address is about, its own parameters, and the kind of its answer.
fn about(
    endpoint: Endpoint,
) -> (&'static str, &'static [(&'static str, &'static str, &'static str)]) {
    match endpoint {
        Endpoint::Count => ("How many packets match", &[]),
        Endpoint::Top => (
            "The most frequent values of fields",
            &[
                ("field", "string", "Fields, with commas in between"),
                ("by", "string", "packets or bytes"),
                ("n", "integer", "Number of values; 0 is all"),
                ("budget_ms", "integer", "Skip fields for which no time is left then"),
            ],
        ),
        Endpoint::Histogram => (
            "Packets over time",
            &[
                ("span", "string", "Length of a span: 100us, 10ms, 60s, 5m, 1h, 1d"),
                ("span_ns", "integer", "The same in nanoseconds"),
                ("bins", "integer", "Or: the largest number of spans"),
                ("by", "string", "packets or bytes"),
                ("stack", "string", "A field whose values are told apart"),
                ("stack_n", "integer", "How many of them"),
            ],
        ),
        Endpoint::Flows => (
            "Conversations",
            &[
                ("sort", "string", "bytes, packets, duration or start"),
                ("n", "integer", "Number of conversations; 0 is all"),
                ("whole", "boolean", "Also count the other packets of the conversations"),
            ],
        ),
        Endpoint::Explain => ("How a filter is understood and answered", &[]),
        Endpoint::Search => (
            "A line of JSON for each packet; the last line says what is missing",
            &[
                ("limit_packets", "integer", "The most packets"),
                ("follow", "boolean", "Go on with packets as they are recorded"),
            ],
        ),
        Endpoint::Packets => (
            "The packets as a capture",
            &[
                ("format", "string", "pcapng or pcap"),
                ("limit_packets", "integer", "The most packets"),
                ("limit_bytes", "integer", "The most bytes of packets"),
                ("whole", "boolean", "All packets of the conversations"),
                ("follow", "boolean", "Go on with packets as they are recorded"),
                ("statistics", "boolean", "Say how many packets each interface had"),
            ],
        ),
        Endpoint::Live => (
            "Packets as they are recorded, as a capture",
            &[
                ("format", "string", "pcapng or pcap"),
                ("limit_packets", "integer", "The most packets"),
                ("limit_bytes", "integer", "The most bytes of packets"),
            ],
        ),
        Endpoint::Packet => ("A packet by its id, field by field, with its bytes", &[]),
        Endpoint::Audit => (
            "The last lines of the audit log, and whether its chain holds",
            &[("n", "integer", "Number of lines")],
        ),
        Endpoint::Answer => ("What became of a stream, by the header Tapdex-Answer", &[]),
        Endpoint::Segments => ("The archive: segments, fields, gaps, recorder", &[]),
        Endpoint::Status => ("The server and its recorder", &[]),
        Endpoint::Fields => ("The fields that packets can be counted by", &[]),
        Endpoint::Interfaces => ("The interfaces that packets came from", &[]),
        Endpoint::Jobs => (
            "Extracts that take long: POST makes one, GET lists them",
            &[
                ("format", "string", "pcapng or pcap"),
                ("limit_packets", "integer", "The most packets"),
                ("limit_bytes", "integer", "The most bytes of packets"),
                ("whole", "boolean", "All packets of the conversations"),
            ],
        ),
        Endpoint::Job => ("A job by its id; DELETE removes it", &[]),
        Endpoint::JobResult => ("The capture of a job, or a range of its bytes", &[]),
        Endpoint::Stenographer => ("Stenographer's query: the body is the query", &[]),
        // Is at no address of the API.
        Endpoint::PcapOverIp => ("A live capture without a request", &[]),
    }
}

/// The kind of an answer.
fn kind(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Search => "application/x-ndjson",
        Endpoint::Packets | Endpoint::Live | Endpoint::JobResult => "application/x-pcapng",
        Endpoint::Stenographer => "application/octet-stream",
        _ => "application/json",
    }
}

fn takes_question(endpoint: Endpoint) -> bool {
    !matches!(
        endpoint,
        Endpoint::Packet
            | Endpoint::Answer
            | Endpoint::Job
            | Endpoint::JobResult
            | Endpoint::Segments
            | Endpoint::Status
            | Endpoint::Fields
            | Endpoint::Interfaces
            | Endpoint::Audit
            | Endpoint::Stenographer
    )
}

/// The description of the API.
pub fn document() -> Value {
    let mut paths = serde_json::Map::new();
    for (path, endpoint) in ROUTES {
        paths.insert(path.to_owned(), operations(path, endpoint));
    }
    for (path, about, kind) in [
        ("/metrics", "Numbers for Prometheus", "text/plain"),
        ("/healthz", "Whether the server runs", "text/plain"),
        ("/readyz", "Whether the server answers questions", "text/plain"),
        ("/openapi.json", "This description", "application/json"),
        ("/", "The page for people", "text/html"),
    ] {
        let answer = json!({"200": {"description": about, "content": {kind: {}}}});
        let id = path.trim_start_matches('/').replace('.', "_");
        let operation = json!({"operationId": id, "summary": about, "responses": answer});
        paths.insert(path.to_owned(), json!({"get": operation}));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "tapdex",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Packets of an archive, by tcpdump and Wireshark filters.",
            "license": {"name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": {
                "type": "object",
                "required": ["error"],
                "properties": {
                    "error": {"type": "string", "description": "What is wrong"},
                    "offset": {"type": "integer", "description": "Where in the filter, in bytes"},
                    "length": {"type": "integer", "description": "Of how many bytes"},
                    "hint": {"type": "string", "description": "What to do"},
                    "fix": {"type": "string", "description": "What to write there instead"},
                },
            }},
        },
    })
}

fn operations(path: &str, endpoint: Endpoint) -> Value {
    let (summary, own) = about(endpoint);
    let question = if takes_question(endpoint) { &QUESTION[..] } else { &[] };
    let all: Vec<_> = question.iter().chain(own).collect();
    let in_query = all.iter().map(|(name, kind, about)| {
        let required = *name == "field";
        json!({
            "name": name, "in": "query", "required": required, "description": about,
            "schema": {"type": kind},
        })
    });
    let mut parameters: Vec<Value> = in_query.collect();
    if path.contains("{id}") {
        parameters.push(json!({
            "name": "id", "in": "path", "required": true, "schema": {"type": "string"},
            "description": "Its id",
        }));
    }
    let mut responses = serde_json::Map::new();
    responses
        .insert("200".to_owned(), json!({"description": summary, "content": {kind(endpoint): {}}}));
    for (status, about) in [
        ("400", "The request makes no sense; for filters with the place"),
        ("401", "A valid token or client certificate is needed"),
        ("403", "The role may not do that"),
        ("404", "There is no such thing"),
        ("413", "It is more than may be asked for"),
        ("429", "Too many questions; Retry-After says when to ask again"),
        ("503", "Nobody can be let in, or the audit log cannot be written"),
    ] {
        let content =
            json!({"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}});
        responses.insert(status.to_owned(), json!({"description": about, "content": content}));
    }
    let words: Vec<&str> = path.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let id = words.join("_").trim_matches('_').to_owned();
    if endpoint == Endpoint::Stenographer {
        for name in ["Steno-Limit-Packets", "Steno-Limit-Bytes"] {
            parameters.push(json!({
                "name": name, "in": "header", "required": false, "schema": {"type": "integer"},
                "description": "A limit; 0 is none",
            }));
        }
        let body =
            json!({"required": true, "content": {"text/plain": {"schema": {"type": "string"}}}});
        return json!({"post": {
            "operationId": id, "summary": summary, "parameters": parameters,
            "requestBody": body, "responses": responses,
        }});
    }
    let mut operations = json!({"get": {
        "operationId": id, "summary": summary, "parameters": parameters, "responses": responses,
    }});
    if endpoint == Endpoint::Jobs {
        operations["get"]["parameters"] = json!([]);
    }
    if endpoint == Endpoint::Job {
        let gone = json!({"204": {"description": "It is gone"}});
        operations["delete"] = json!({
            "operationId": format!("{id}_delete"), "summary": "Remove a job and its result",
            "parameters": operations["get"]["parameters"], "responses": gone,
        });
    }
    if takes_question(endpoint) {
        let members: serde_json::Map<String, Value> = all
            .iter()
            .map(|(name, kind, about)| {
                ((*name).to_owned(), json!({"type": kind, "description": about}))
            })
            .collect();
        let schema = json!({
            "type": "object", "properties": members, "additionalProperties": false,
        });
        operations["post"] = json!({
            "operationId": format!("{id}_post"), "summary": summary,
            "requestBody": {"content": {"application/json": {"schema": schema}}},
            "responses": responses,
        });
    }
    operations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_described() {
        let document = document();
        for (path, endpoint) in ROUTES {
            let operations = &document["paths"][path];
            let method = if endpoint == Endpoint::Stenographer { "post" } else { "get" };
            assert!(operations[method]["summary"].is_string(), "{path}");
        }
        assert_eq!(document["openapi"], "3.1.0");
    }
}
