//! Which device builds the indexes: what the user asks for, and what is used.
//!
//! A [`DeviceChoice`] is read from words such as `auto` or `cuda:1`, and [`DeviceChoice::open`]
//! turns it into an [`Opened`]. A CUDA device that is asked for by name is opened, or the error
//! says what is missing; `auto` never fails, but says why it uses the CPU.
//!
//! ```
//! use tapdex_gpu::choice::{DeviceChoice, Opened};
//!
//! let choice: DeviceChoice = "auto".parse()?;
//! match choice.open()? {
//!     Opened::Device(device) => println!("using {}", device.facts().name),
//!     Opened::Cpu { note: Some(note) } => eprintln!("{note}"),
//!     Opened::Cpu { note: None } => {}
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::cuda::CudaDevice;
use crate::device::{Device, DeviceError};

/// The device that a user asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// `auto`: the first CUDA device if there is one, the CPU otherwise.
    #[default]
    Auto,
    /// `cpu`: no device.
    Cpu,
    /// `cuda` or `cuda:N`: the CUDA device of this number, from 0.
    Cuda(usize),
}

/// The result of a [`DeviceChoice`].
#[derive(Debug)]
pub enum Opened {
    /// This device.
    Device(Arc<dyn Device>),
    /// The CPU.
    Cpu {
        /// Why, in one line to be shown once; `None` if the CPU was asked for.
        note: Option<String>,
    },
}

impl Opened {
    /// The device, if it is not the CPU.
    pub fn into_device(self) -> Option<Arc<dyn Device>> {
        match self {
            Opened::Device(device) => Some(device),
            Opened::Cpu { .. } => None,
        }
    }
}

impl DeviceChoice {
    /// Opens the device. Fails only if a CUDA device was asked for by name.
    pub fn open(self) -> Result<Opened, DeviceError> {
        match self {
            DeviceChoice::Cpu => Ok(Opened::Cpu { note: None }),
            DeviceChoice::Cuda(number) => Ok(Opened::Device(CudaDevice::open(number)?)),
            DeviceChoice::Auto => Ok(match CudaDevice::open(0) {
                Ok(device) => Opened::Device(device),
                Err(error) => Opened::Cpu { note: Some(note(&error)) },
            }),
        }
    }
}

fn note(error: &DeviceError) -> String {
    match error {
        DeviceError::Missing(why) => format!("no CUDA device ({why}), using the CPU"),
        error => format!("the CUDA device cannot be used ({error}), using the CPU"),
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => out.write_str("auto"),
            DeviceChoice::Cpu => out.write_str("cpu"),
            DeviceChoice::Cuda(number) => write!(out, "cuda:{number}"),
        }
    }
}

/// The text is not the name of a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is no device; there are auto, cpu, cuda, and cuda:N with N counted from 0")]
pub struct UnknownDevice {
    /// The words.
    pub found: String,
}

impl FromStr for DeviceChoice {
    type Err = UnknownDevice;

    fn from_str(text: &str) -> Result<Self, UnknownDevice> {
        match text {
            "auto" => Ok(DeviceChoice::Auto),
            "cpu" => Ok(DeviceChoice::Cpu),
            "cuda" => Ok(DeviceChoice::Cuda(0)),
            _ => text
                .strip_prefix("cuda:")
                .and_then(number)
                .map(DeviceChoice::Cuda)
                .ok_or_else(|| UnknownDevice { found: text.to_owned() }),
        }
    }
}

fn number(digits: &str) -> Option<usize> {
    // `parse` alone would accept a sign.
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_written() {
        for (text, choice) in [
            ("auto", DeviceChoice::Auto),
            ("cpu", DeviceChoice::Cpu),
            ("cuda:0", DeviceChoice::Cuda(0)),
            ("cuda:17", DeviceChoice::Cuda(17)),
        ] {
            assert_eq!(text.parse(), Ok(choice));
            assert_eq!(choice.to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        assert_eq!(DeviceChoice::default(), DeviceChoice::Auto);
    }

    #[test]
    fn other_words_are_refused_by_name() {
        let huge = format!("cuda:{}0", usize::MAX);
        for text in ["", "gpu", "CUDA", "cuda:", "cuda:x", "cuda:+1", "cuda:-1", "cuda 1", &huge] {
            let error = text.parse::<DeviceChoice>().unwrap_err();
            assert_eq!(error, UnknownDevice { found: text.to_owned() });
            assert!(error.to_string().contains("cuda:N"), "{error}");
        }
    }

    #[test]
    fn the_cpu_needs_nothing() {
        assert!(matches!(DeviceChoice::Cpu.open(), Ok(Opened::Cpu { note: None })));
    }

    // The next two hold with a GPU and without.

    #[test]
    fn auto_always_opens_and_says_what_it_uses() {
        match (DeviceChoice::Auto.open().unwrap(), CudaDevice::open(0)) {
            (Opened::Device(device), Ok(_)) => assert!(!device.facts().name.is_empty()),
            (Opened::Cpu { note: Some(note) }, Err(_)) => {
                assert!(note.ends_with("using the CPU") && !note.contains('\n'), "{note}");
            }
            (opened, direct) => panic!("{opened:?}, but {direct:?}"),
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error_with_a_way_out() {
        let error = DeviceChoice::Cuda(4096).open().unwrap_err();
        assert!(matches!(error, DeviceError::Missing(_)), "{error}");
        let text = error.to_string();
        let ways = ["install", "there is no device 4096", "finds no card"];
        assert!(ways.iter().any(|way| text.contains(way)), "{text}");
    }

    #[test]
    fn the_note_says_why() {
        let missing = note(&DeviceError::Missing(crate::device::Lack::Card));
        let why = "the NVIDIA driver finds no card: see what nvidia-smi says";
        assert_eq!(missing, format!("no CUDA device ({why}), using the CPU"));
        let lost = note(&DeviceError::Lost { at: "opening", why: "busy".to_owned() });
        assert_eq!(
            lost,
            "the CUDA device cannot be used (the device failed at opening: busy), using the CPU"
        );
    }
}
