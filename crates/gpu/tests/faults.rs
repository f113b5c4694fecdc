//! A device that is full, or that fails: nothing is lost.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use tapdex_bitmap::Codec;
use tapdex_engine::index::{BuildError, Builder, ColumnIndex, CpuBuilder, Digits};
use tapdex_gpu::device::DeviceError;
use tapdex_gpu::host::HostDevice;
use tapdex_gpu::{ColumnSource, Form, GpuBuilder};

const CODECS: [Codec; 3] = [Codec::Wah, Codec::Compax, Codec::Roaring];

/// Columns of several sizes.
fn columns() -> Vec<Vec<u8>> {
    let column = |rows: u32| (0..rows).map(|row| (row * row / 7).to_le_bytes()[0]).collect();
    [900, 3_000, 100, 0, 2_000, 500].into_iter().map(column).collect()
}

/// Builds all columns on a device; they have to be those of the CPU, in order.
fn build(builder: &mut GpuBuilder, what: &str) {
    let columns = columns();
    let all: Vec<_> = columns
        .iter()
        .zip(CODECS.iter().cycle())
        .map(|(column, &codec)| (Digits::Bytes(column), codec))
        .collect();
    let (mut cpu, mut expected) = (CpuBuilder::new(1), ColumnIndex::default());
    let mut at = 0;
    builder
        .build_each::<BuildError>(&all, |index| {
            let (digits, codec) = all[at];
            cpu.build(digits, codec, &mut expected)?;
            assert!(*index == expected, "{what}: column {at}, {codec}");
            at += 1;
            Ok(())
        })
        .unwrap();
    assert_eq!(at, all.len(), "{what}");
}

#[test]
fn a_device_may_be_lost_at_any_launch() {
    let whole = HostDevice::new(1).unwrap();
    build(&mut GpuBuilder::new(whole.clone()), "all well");
    let launches = whole.launches();
    assert!(launches > 30);
    for launch in (0..launches).step_by(5) {
        let device = HostDevice::new(1).unwrap();
        device.lose_at(launch);
        let mut builder = GpuBuilder::new(device.clone());
        let what = format!("lost at launch {launch} of {launches}");
        build(&mut builder, &what);
        assert!(matches!(builder.trouble(), Some(DeviceError::Lost { .. })), "{what}");
        let before = builder.built();
        assert!(before.cpu > 1, "{what}: besides the empty column");
        // It is not asked again.
        build(&mut builder, &what);
        assert_eq!(builder.built().device, before.device, "{what}");
        drop(builder);
        assert_eq!((device.memory_used(), device.memory_pinned()), (0, 0), "{what}");
    }
}

#[test]
fn a_full_device_has_fewer_columns_in_flight() {
    let whole = HostDevice::new(1).unwrap();
    let mut builder = GpuBuilder::new(whole.clone());
    build(&mut builder, "all well");
    let needed = whole.memory_used();
    let (mut all_there, mut none_there) = (false, false);
    for share in 1..=10 {
        let device = HostDevice::new(1).unwrap();
        device.fail_alloc_above(needed * share / 10);
        let mut builder = GpuBuilder::new(device.clone());
        let what = format!("{share} tenths of the memory");
        build(&mut builder, &what);
        let built = builder.built();
        assert_eq!(built.device + built.cpu, 6, "{what}");
        if share < 10 && built.cpu > 1 {
            assert!(matches!(builder.trouble(), Some(DeviceError::OutOfMemory { .. })), "{what}");
        }
        all_there |= share < 10 && built.cpu == 1;
        none_there |= built.cpu > 1;
        // With room again, all columns are built there.
        device.fail_alloc_above(usize::MAX);
        build(&mut builder, &what);
        assert_eq!(builder.built().device - built.device, 5, "{what}");
    }
    assert!(all_there, "with less than all memory all columns are built, fewer at a time");
    assert!(none_there, "with hardly any memory the CPU builds what does not fit");
}

/// With room for one column all are built on the device, whatever room there is beyond that.
#[test]
fn room_for_one_column_is_enough() {
    let column: Vec<u8> = (0..2_000_u32).map(|row| (row * row / 7).to_le_bytes()[0]).collect();
    let all = vec![(Digits::Bytes(&column), Codec::Wah); 12];
    let build = |device: &std::sync::Arc<HostDevice>| {
        let mut builder = GpuBuilder::new(device.clone());
        builder.build_each::<BuildError>(&all, |_| Ok(())).unwrap();
        builder
    };
    let alone = HostDevice::new(1).unwrap();
    let mut builder = GpuBuilder::new(alone.clone()).with_in_flight(1);
    builder.build_each::<BuildError>(&all, |_| Ok(())).unwrap();
    let needed = alone.memory_used();
    for tenths in 10..45 {
        let device = HostDevice::new(1).unwrap();
        device.fail_alloc_above(needed * tenths / 10);
        let built = build(&device).built();
        assert_eq!((built.device, built.cpu), (12, 0), "{tenths} tenths");
    }
    let device = HostDevice::new(1).unwrap();
    device.fail_alloc_above(needed / 2);
    assert_eq!(build(&device).built().cpu, 12);
}

#[test]
fn columns_too_long_for_the_device_are_built_here() {
    let device = HostDevice::new(1).unwrap();
    let mut builder = GpuBuilder::new(device.clone());
    let rows = (1 << 27) + 1;
    let source = ColumnSource::Runs(&[3, 4], &[0, 5], rows);
    let mut built = Vec::new();
    builder
        .build_sources::<BuildError>(&[(source, Form::Whole(Codec::Plwah))], |index| {
            built.push(index.clone());
            Ok(())
        })
        .unwrap();
    assert_eq!((built[0].keys.clone(), built[0].rows), (vec![3, 4], rows));
    assert_eq!((builder.built().cpu, device.launches()), (1, 0));
}

#[test]
fn an_error_of_the_caller_ends_it() {
    #[derive(Debug)]
    struct Enough;
    impl From<BuildError> for Enough {
        fn from(error: BuildError) -> Self {
            panic!("{error}")
        }
    }
    let device = HostDevice::new(1).unwrap();
    let mut builder = GpuBuilder::new(device.clone());
    let column = columns().swap_remove(0);
    let all = vec![(Digits::Bytes(&column), Codec::Plwah); 9];
    let mut seen = 0;
    let result = builder.build_each(&all, |_| {
        seen += 1;
        if seen == 2 { Err(Enough) } else { Ok(()) }
    });
    assert!(matches!(result, Err(Enough)));
    assert_eq!(seen, 2);
    build(&mut builder, "afterwards");
}

#[test]
fn what_is_handed_out_stays_as_it_is() {
    let device = HostDevice::new(1).unwrap();
    let mut builder = GpuBuilder::new(device.clone());
    let columns: Vec<Vec<u8>> = (0..12).map(|n| vec![n; 40 + usize::from(n)]).collect();
    let all: Vec<_> = columns.iter().map(|c| (Digits::Bytes(c), Codec::Roaring)).collect();
    let mut kept = Vec::new();
    builder
        .build_each::<BuildError>(&all, |index| {
            kept.push(index.clone());
            Ok(())
        })
        .unwrap();
    let (mut cpu, mut expected) = (CpuBuilder::new(1), ColumnIndex::default());
    for ((digits, codec), index) in all.into_iter().zip(&kept) {
        cpu.build(digits, codec, &mut expected).unwrap();
        assert!(*index == expected);
    }
}
