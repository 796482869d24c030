"""The groups of metrics of `neuron-monitor`, in the schema of the real tool (Neuron docs, Neuron Monitor User Guide).

Readers of that schema unpack some of its objects into records, so nothing is added to those; fields that a simulation
does not have are empty or zero. Each group has `period`, its length in seconds, and `error`, empty or the reason to
leave its figures out. Nothing here reads files or counters.
"""

from __future__ import annotations

import uuid
from typing import Any

from ..hardware import TARGETS, InstanceSpec
from ..runtime import ModelStatus, Status
from .host import CpuTimes, ProcessUse, cpu_percent, mean_percent
from .usage import Usage

Group = dict[str, Any]

_HBM = {"constants": "weights", "model_code": "code", "model_shared_scratchpad": "scratch", "tensors": "kv_cache"}
"""Categories of HBM by the tool's names. Microcode counts as model code, as in the runtime's own messages."""
CORE_MEMORY = ("constants", "model_code", "model_shared_scratchpad", "runtime_memory", "tensors")
_ERRORS = ("generic", "numerical", "transient", "model", "runtime", "hardware")
_OUTCOMES = ("completed_with_err", "completed_with_num_err", "timed_out", "incorrect_input", "failed_to_queue")
_ECC = ("mem_ecc_corrected", "mem_ecc_uncorrected", "sram_ecc_uncorrected", "sram_ecc_corrected")
_NOT_TIMED = "the simulated time of some calls is being counted"

DEVICE_VERSIONS = {"Inferentia": "v1", "Trainium": "v2", "Inferentia2": "v3", "Trainium2": "v4"}
"""Versions of devices where they are published; empty elsewhere."""


def neuroncore_counters(period_s: float, usage: Usage, instance: InstanceSpec) -> Group:
    """Utilization and operations of each core that the process holds."""
    physical = instance.chip.default_lnc
    cores = {}
    for core_id, use in usage.cores.items():
        percent = use.utilization_percent or 0.0
        core: Group = {"neuroncore_utilization": percent, "flops": round(use.flops_per_s or 0.0)}
        if physical > 1:
            # A call takes all physical cores of a logical one.
            names = (f"nc_v{_generation(instance)}.{core_id * physical + number}" for number in range(physical))
            core[core_version(instance)] = {name: {"neuroncore_utilization": percent} for name in names}
        cores[str(core_id)] = core
    return {"period": period_s, "neuroncores_in_use": cores, "error": "" if usage.timed else _NOT_TIMED}


def execution_stats(period_s: float, usage: Usage) -> Group:
    """Calls by outcome, and percentiles of their simulated times."""
    failed = usage.errors.get("completed_with_err", 0)
    return {
        "period": period_s,
        "error_summary": dict.fromkeys(_ERRORS, 0) | {"generic": failed},
        "execution_summary": {
            "completed": sum(calls.num_calls for calls in usage.calls),
            **{outcome: usage.errors.get(outcome, 0) for outcome in _OUTCOMES},
        },
        "latency_stats": {
            "total_latency": usage.latencies_s(launch=True),
            "device_latency": usage.latencies_s(launch=False),
        },
        "error": "" if usage.timed else _NOT_TIMED,
    }


def memory_used(period_s: float, status: Status, host: ProcessUse, instance: InstanceSpec, usage: Usage) -> Group:
    """HBM of a process by core and model, and its memory on the host."""
    cores = {
        str(core.core_id): {
            name: sum(used.get(_HBM.get(name, ""), 0) for used in core.hbm_bytes.values()) for name in CORE_MEMORY
        }
        for core in status.cores
    }
    running = {calls.model_id for calls in usage.calls}
    return {
        "period": period_s,
        "neuron_runtime_used_bytes": {
            "host": host.memory_bytes,
            "neuron_device": sum(sum(used.values()) for used in cores.values()),
            "usage_breakdown": {"host": _host_memory(host.memory_bytes), "neuroncore_memory_usage": cores},
        },
        "loaded_models": [
            {
                "name": model.name,
                "uuid": uuid.uuid5(uuid.NAMESPACE_OID, f"{status.pid} {model.model_id} {model.name}").hex,
                "model_id": model.model_id,
                "is_running": model.model_id in running or model.running_us > 0,
                "subgraphs": _subgraphs(model, status, instance),
            }
            for model in status.models
        ],
        "error": host.error,
    }


def neuron_runtime_vcpu_usage(period_s: float, before: ProcessUse, after: ProcessUse, num_vcpus: int) -> Group:
    """Processor time of a process in percent of all vCPUs."""
    share = 100 / (period_s * max(num_vcpus, 1)) if period_s else 0.0
    error = before.error or after.error
    spent = {"user": after.user_s - before.user_s, "system": after.system_s - before.system_s}
    usage = {name: 0.0 if error else max(seconds, 0.0) * share for name, seconds in spent.items()}
    return {"period": period_s, "vcpu_usage": usage, "error": error}


def vcpu_usage(period_s: float, before: CpuTimes, after: CpuTimes, num_switches: int) -> Group:
    """Use of the host's vCPUs, and context switches in the period."""
    shares = cpu_percent(before, after)
    return {
        "period": period_s,
        "average_usage": mean_percent(shares),
        "usage_data": {str(index): share for index, share in enumerate(shares)},
        "context_switch_count": num_switches,
        "error": "",
    }


def memory_info(period_s: float, *, total: int, used: int, swap_total: int, swap_used: int) -> Group:
    """Memory of the host in bytes."""
    return {
        "period": period_s,
        "memory_total_bytes": total,
        "memory_used_bytes": used,
        "swap_total_bytes": swap_total,
        "swap_used_bytes": swap_used,
        "error": "",
    }


def neuron_hw_counters(period_s: float, instance: InstanceSpec) -> Group:
    """Memory errors: a simulated device has none."""
    devices = [{"neuron_device_index": index, **dict.fromkeys(_ECC, 0)} for index in range(instance.num_chips)]
    return {"period": period_s, "neuron_devices": devices, "error": ""}


def instance_info(instance: InstanceSpec) -> Group:
    """The simulated instance; it is in no region, zone or network."""
    return {
        "instance_name": "",
        "instance_id": "simulated",
        "instance_type": instance.name,
        "instance_availability_zone": "",
        "instance_availability_zone_id": "",
        "instance_region": "",
        "ami_id": "",
        "subnet_id": "",
        "error": "",
    }


def neuron_hardware_info(instance: InstanceSpec) -> Group:
    """Its devices and cores."""
    return {
        "neuron_device_type": instance.chip.name.lower(),
        "neuron_device_version": DEVICE_VERSIONS.get(instance.chip.name, ""),
        "neuroncore_version": core_version(instance),
        "neuron_device_count": instance.num_chips,
        "neuron_device_memory_size": instance.chip.hbm_bytes,
        "neuroncore_per_device_count": TARGETS[instance.family].logical_cores_per_chip(),
        "logical_neuroncore_config": instance.chip.default_lnc,
        "error": "",
    }


def core_version(instance: InstanceSpec) -> str:
    """Version of the cores as the tools write it, such as v2; v3d where two make a logical one."""
    return f"v{_generation(instance)}{'d' if instance.chip.default_lnc == 2 else ''}"


def _generation(instance: InstanceSpec) -> int:
    return instance.chip.core.generation


def _subgraphs(model: ModelStatus, status: Status, instance: InstanceSpec) -> Group:
    """Memory of a model on each of its cores. Models of one name on a core are one owner there."""
    per_device = TARGETS[instance.family].logical_cores_per_chip()
    owned = {core.core_id: core.hbm_bytes.get(model.name, {}) for core in status.cores}
    return {
        f"sg_{index:02}": {
            "memory_used_bytes": {
                "host": 0,
                "neuron_device": sum(owned.get(core_id, {}).values()),
                "usage_breakdown": {
                    "host": _host_memory(0),
                    "neuron_device": {
                        name: owned.get(core_id, {}).get(_HBM.get(name, ""), 0)
                        for name in CORE_MEMORY
                        if name != "model_shared_scratchpad"
                    },
                },
            },
            "neuroncore_index": core_id,
            "neuron_device_index": core_id // per_device,
        }
        for index, core_id in enumerate(model.core_ids)
    }


def _host_memory(total: int) -> Group:
    return {"application_memory": total, "constants": 0, "dma_buffers": 0, "tensors": 0}
