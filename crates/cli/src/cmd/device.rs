//! The device that builds indexes: how it is asked for, and what is said of it.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use tapdex_gpu::choice::{DeviceChoice, Opened};
use tapdex_gpu::cuda::has_driver;
use tapdex_gpu::device::{Device, DeviceError};

/// The option for it.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct DeviceArg {
    /// Device that builds the index: auto is a GPU if there is one and much to do, cpu is none,
    /// cuda is a GPU or nothing, cuda:N the one of that number, from 0.
    #[arg(
        long,
        value_name = "DEVICE",
        env = "TAPDEX_DEVICE",
        default_value = "auto",
        value_parser = parse,
        verbatim_doc_comment
    )]
    device: DeviceChoice,
}

pub(super) fn parse(text: &str) -> Result<DeviceChoice, String> {
    text.parse().map_err(|_| "expected auto, cpu, cuda, or cuda:N with N counted from 0".to_owned())
}

/// The device that is used.
#[derive(Debug)]
pub(super) struct Used {
    device: Option<Arc<dyn Device>>,
    /// Why it is the CPU, where that was not asked for.
    why: Option<String>,
}

impl DeviceArg {
    /// What a text says, where it does not come from the option.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        Ok(Self { device: parse(text)? })
    }

    /// Opens the device for work on some files. Fails only where a GPU was asked for by name; that
    /// is before anything else is done. If it is left to us, a GPU has to be worth it: to open one
    /// takes half a second, which it makes up for from so many bytes on.
    pub(super) fn open<'f>(
        self,
        mut files: impl Iterator<Item = &'f Path>,
        worth_bytes: u64,
    ) -> anyhow::Result<Used> {
        let mut is_worth_it = || {
            let len = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
            files.by_ref().map(len).sum::<u64>() >= worth_bytes
        };
        match self.device {
            DeviceChoice::Auto if has_driver() && !is_worth_it() => {
                Ok(Used { device: None, why: Some("too little to do for a GPU".to_owned()) })
            }
            DeviceChoice::Auto => Ok(Used::from_auto(open(DeviceChoice::Cuda(0)))),
            choice => {
                let device = open(choice).with_context(|| format!("--device {choice}"))?;
                Ok(Used { device, why: None })
            }
        }
    }
}

fn open(choice: DeviceChoice) -> Result<Option<Arc<dyn Device>>, DeviceError> {
    choice.open().map(Opened::into_device)
}

/// Opens a GPU, and nothing else will do.
pub(super) fn open_gpu(choice: DeviceChoice) -> anyhow::Result<Arc<dyn Device>> {
    let opened = open(choice).with_context(|| format!("--device {choice}"))?;
    opened.with_context(|| format!("--device {choice}: this is about a GPU, such as cuda"))
}

impl Used {
    fn from_auto(opened: Result<Option<Arc<dyn Device>>, DeviceError>) -> Self {
        match opened {
            Ok(device) => Self { device, why: None },
            // Most machines have none, and this is said each time: in few words.
            Err(DeviceError::Missing(_)) => {
                let why = "no CUDA device, --device cuda says why".to_owned();
                Self { device: None, why: Some(why) }
            }
            Err(error) => Self { device: None, why: Some(error.to_string()) },
        }
    }

    /// The device, if it is not the CPU.
    pub(super) fn opened(&self) -> Option<Arc<dyn Device>> {
        self.device.clone()
    }

    /// Which one it is, for the end of a summary; nothing where the CPU was asked for.
    pub(super) fn shown(&self) -> String {
        match (&self.device, &self.why) {
            (Some(device), _) => format!("; device: {}", device.facts().name),
            (None, Some(why)) => format!("; device: cpu ({why})"),
            (None, None) => String::new(),
        }
    }

    /// The same where the device is not made use of, and why.
    pub(super) fn shown_unused(&self, why: &str) -> String {
        match &self.device {
            Some(_) => format!("; device: cpu ({why})"),
            None => self.shown(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_the_cpu_is_short_unless_something_is_wrong() {
        let missing = Used::from_auto(Err(DeviceError::Missing("a long story".to_owned())));
        let expected = "; device: cpu (no CUDA device, --device cuda says why)";
        assert_eq!(missing.shown(), expected);
        assert_eq!(missing.shown_unused("order arrival"), expected);
        let lost = DeviceError::Lost { at: "opening", why: "busy".to_owned() };
        let lost = Used::from_auto(Err(lost));
        assert_eq!(lost.shown(), "; device: cpu (the device failed at opening: busy)");
        assert!(lost.opened().is_none());
        let asked_for =
            DeviceArg { device: DeviceChoice::Cpu }.open(std::iter::empty(), 0).unwrap();
        assert_eq!(
            (asked_for.shown(), asked_for.shown_unused("any")),
            (String::new(), String::new())
        );
    }
}
