//! Jobs on disk: after a restart, a quota, a day, and other hands.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::time::Duration;

use tapdex_answers::ask::Answer;
use tapdex_answers::deliver::Delivered;
use tapdex_answers::json::Digits;
use tapdex_answers::question::Question;
use tapdex_engine::query::Control;
use tapdex_server::jobs::{JOBS_MAX, JobError, JobLimits, JobState, Jobs, Order};
use tapdex_server::state::State;

fn order() -> Order {
    Order {
        question: Question::default(),
        format: "pcapng".to_owned(),
        limit_packets: None,
        limit_bytes: None,
        whole: false,
        reason: None,
    }
}

fn answer() -> Answer<Delivered> {
    Answer {
        value: Delivered { packets: 1, bytes: 60, stopped: false },
        complete: true,
        incomplete: Vec::new(),
        intervals: Vec::new(),
        behind_tags: None,
        notes: Vec::new(),
        matched: 1,
        read: 0,
        first: None,
        last: None,
        segments_read: 1,
        segments: 1,
        seconds: Digits(0.0),
        nodes: Vec::new(),
    }
}

/// Runs a job whose result has so many bytes, at a time.
fn run(jobs: &Jobs, bytes: usize, now_ns: u64) -> Result<String, std::io::Error> {
    let job = jobs.add("owner", "who", order(), now_ns).unwrap();
    let mut file = jobs.begin(&job.id, &Control::default()).unwrap().unwrap();
    file.write_all(&vec![7; bytes])?;
    let (len, sha256) = file.finish()?;
    jobs.end(&job.id, Ok((answer(), len, sha256)), now_ns).unwrap();
    Ok(job.id)
}

fn files(state: &State) -> usize {
    std::fs::read_dir(state.path_of("jobs")).unwrap().count()
}

#[test]
fn what_was_done_outlasts_a_restart_and_the_rest_runs_again() {
    let folder = tempfile::tempdir().unwrap();
    let state = State::create(&folder.path().join("state")).unwrap();
    let (jobs, again) = Jobs::open(&state, JobLimits::default(), 1).unwrap();
    assert!(again.is_empty());
    let done = run(&jobs, 1000, 1).unwrap();
    let waiting = jobs.add("owner", "who", order(), 2).unwrap().id;
    let running = jobs.add("owner", "who", order(), 3).unwrap().id;
    jobs.begin(&running, &Control::default()).unwrap().unwrap().write_all(b"half").unwrap();
    drop(jobs);
    std::fs::write(state.path_of("jobs").join("garbage.json"), "{}").unwrap();
    let (jobs, again) = Jobs::open(&state, JobLimits::default(), 4).unwrap();
    let mut again: Vec<String> = again.into_iter().map(|job| job.id).collect();
    again.sort();
    let mut expected = vec![waiting, running.clone()];
    expected.sort();
    assert_eq!(again, expected);
    let mut bytes = Vec::new();
    jobs.result(&done).unwrap().unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, vec![7; 1000]);
    // Nobody gets a half.
    assert!(jobs.result(&running).unwrap().is_none());
    assert_eq!(files(&state), 4);
    jobs.remove(&done).unwrap();
    assert!(jobs.get(&done, 4).is_none() && files(&state) == 2);
}

#[test]
fn results_go_after_their_time_and_the_oldest_for_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let state = State::create(&folder.path().join("state")).unwrap();
    let limits = JobLimits { quota: 3_000, keep: Duration::from_nanos(100) };
    let (jobs, _) = Jobs::open(&state, limits, 0).unwrap();
    let ids: Vec<String> = (0..3).map(|n| run(&jobs, 1_000, n).unwrap()).collect();
    let there = |now| ids.iter().filter(|id| jobs.get(id, now).is_some()).count();
    assert_eq!(there(3), 3);
    let fourth = run(&jobs, 1_500, 3).unwrap();
    assert!(jobs.get(&ids[0], 3).is_none() && jobs.get(&ids[1], 3).is_none());
    assert!(jobs.get(&ids[2], 3).is_some());
    // One that has no room at all fails, whatever else is removed.
    let error = run(&jobs, 3_001, 4).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::QuotaExceeded);
    let failed = jobs.list(4).into_iter().find(|job| job.state == JobState::Running).unwrap();
    jobs.end(&failed.id, Err("no room".to_owned()), 4).unwrap();
    assert!(jobs.result(&failed.id).unwrap().is_none());
    assert!(jobs.get(&fourth, 1_000).is_none());
    assert_eq!((jobs.list(1_000).len(), files(&state)), (0, 0));
}

#[test]
fn nobody_has_too_many_and_a_deleted_job_stops() {
    let folder = tempfile::tempdir().unwrap();
    let state = State::create(&folder.path().join("state")).unwrap();
    let (jobs, _) = Jobs::open(&state, JobLimits::default(), 0).unwrap();
    let first = jobs.add("greedy", "who", order(), 0).unwrap().id;
    for _ in 1..JOBS_MAX {
        jobs.add("greedy", "who", order(), 0).unwrap();
    }
    assert!(matches!(jobs.add("greedy", "who", order(), 0), Err(JobError::TooMany)));
    jobs.add("modest", "who", order(), 0).unwrap();
    let control = Control::default();
    let file = jobs.begin(&first, &control).unwrap().unwrap();
    jobs.remove(&first).unwrap();
    assert!(control.is_cancelled());
    let (len, sha256) = file.finish().unwrap();
    jobs.end(&first, Ok((answer(), len, sha256)), 0).unwrap();
    assert!(jobs.get(&first, 0).is_none() && jobs.result(&first).unwrap().is_none());
    assert!(jobs.begin(&first, &control).unwrap().is_none());
}
