//! A quick look.
#![allow(clippy::unwrap_used, missing_docs)]
use tapdex_bitmap::{ALL_CODECS, Codec};
use tapdex_engine::index::Width;
use tapdex_gpu::measure::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let mi: usize = args[1].parse().unwrap();
    let cols: usize = args[2].parse().unwrap();
    let runs: usize = args[3].parse().unwrap();
    let only: Vec<&str> = args[4].split(',').collect();
    let datas: Vec<&str> = args[5].split(',').collect();
    let device: std::sync::Arc<dyn tapdex_gpu::device::Device> = tapdex_gpu::cuda::CudaDevice::open(0).unwrap();
    println!("{:?}", device.facts());
    let bus = Bus::measure(&device, 5).unwrap();
    println!("{bus:?}");
    for d in datas {
        let rows = mi << 20;
        let t = std::time::Instant::now();
        let columns = match d {
            "u8" => Columns::uniform(&device, Width::Byte, cols, rows, 256, 7).unwrap(),
            "z8" => Columns::zipf(&device, Width::Byte, cols, rows, 7).unwrap(),
            "f8" => Columns::flows(&device, Width::Byte, rows, 7).unwrap(),
            "u16" => Columns::uniform(&device, Width::Short, cols / 2, rows, 65536, 7).unwrap(),
            "z16" => Columns::zipf(&device, Width::Short, cols / 2, rows, 7).unwrap(),
            _ => Columns::flows(&device, Width::Short, rows, 7).unwrap(),
        };
        println!("{d} {} made in {:?}", columns.name, t.elapsed());
        for codec in ALL_CODECS {
            if !only.contains(&codec.name()) && only[0] != "all" { continue; }
            if matches!(codec, Codec::Hipes(_)) && d.ends_with("16") { continue; }
            let m = measure(&device, &columns, codec, runs).unwrap();
            let (mid, lo, hi) = m.rates();
            let least = bus.least(m.bytes_in, m.bytes_out);
            let recs = m.records as f64;
            println!("{d} {:10} {:.2} G/s ({:.2}-{:.2}) kernels {:.1} G/s, {:.3} B/rec, limit {:.2} G/s, share {:.1} %", codec.name(), mid/1e9, lo/1e9, hi/1e9, recs/m.kernels/1e9, m.bytes_out as f64/recs, recs/least/1e9, 100.0*mid*least/recs);
        }
    }
}
