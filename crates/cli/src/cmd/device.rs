//! `--device`: the device that builds indexes.

use std::sync::Arc;

use anyhow::Context;
use tapdex_gpu::choice::{DeviceChoice, Opened};
use tapdex_gpu::device::Device;

use super::counted;

/// The option for it.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct DeviceArg {
    /// Device that builds the index: cpu; cuda, a GPU; cuda:N, the GPU with that number, from 0; or
    /// auto, the fastest way to index whole captures, which is currently cpu.
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
    text.parse().map_err(|_| "expected auto, cpu, cuda, or cuda:N with N from 0".to_owned())
}

/// The device that is used.
#[derive(Debug)]
pub(super) struct Used {
    device: Option<Arc<dyn Device>>,
}

impl DeviceArg {
    /// Parses a text that does not come from the option.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        Ok(Self { device: parse(text)? })
    }

    /// Opens the device, before anything else is done. Fails only if a GPU was asked for by name.
    pub(super) fn open(self) -> anyhow::Result<Used> {
        match self.device {
            // The CPU reads, decodes and groups packets in any case, which takes the longest, so a
            // GPU only adds the copies.
            DeviceChoice::Auto | DeviceChoice::Cpu => Ok(Used { device: None }),
            DeviceChoice::Cuda(_) => Ok(Used { device: Some(open_gpu(self.device)?) }),
        }
    }
}

/// Opens a GPU; there is no fallback.
pub(super) fn open_gpu(choice: DeviceChoice) -> anyhow::Result<Arc<dyn Device>> {
    let opened = choice.open().with_context(|| format!("--device {choice}"))?;
    let device = Opened::into_device(opened);
    device.with_context(|| format!("--device {choice}: expected a GPU, such as cuda"))
}

impl Used {
    /// The device, if it is not the CPU.
    pub(super) fn opened(&self) -> Option<Arc<dyn Device>> {
        self.device.clone()
    }

    /// Its name, for the end of a summary, and how many packets it left to the CPU; empty for the
    /// CPU.
    pub(super) fn shown(&self, refused: u64) -> String {
        let Some(device) = &self.device else { return String::new() };
        let mut text = format!("; device: {}", device.facts().name);
        if refused > 0 {
            text.push_str(&format!(", {} decoded on the CPU", counted(refused, "packet")));
        }
        text
    }
}
