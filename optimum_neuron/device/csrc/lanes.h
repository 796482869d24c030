// Lanes of the simulated cores in `torch.profiler`, by Kineto's interface for devices outside of torch.
//
// A session is made for profiles with ProfilerActivity.PrivateUse1. Python records the calls of compiled graphs
// (profiling/torch_profiler.py), and at the end of a profile hands over one event for each call and each operator.
#pragma once
#define FMT_HEADER_ONLY
#ifndef USE_KINETO
#define USE_KINETO
#endif
#include <kineto/libkineto.h>
#include <kineto/output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#include <algorithm>
#include "host.h"

namespace neuron {

// Kineto's buffer of the session that is being stopped: `neuron_add_lane_event` fills it.
inline thread_local libkineto::CpuTraceBuffer* filled_lanes = nullptr;

constexpr int kCallsLane = 1;
constexpr int kOperatorsLane = 2;

// An operator counts as device time in torch's tables; a call is a span over its operators and does not.
inline void add_lane_event(bool is_call, const char* name, int core, int64_t begin_ns, int64_t end_ns) {
  using Type = libkineto::ActivityType;
  if (filled_lanes == nullptr) return;
  filled_lanes->emplace_activity(
      filled_lanes->span, is_call ? Type::GPU_USER_ANNOTATION : Type::CONCURRENT_KERNEL, name);
  auto& event = *filled_lanes->activities.back();
  event.startTime = begin_ns;
  event.endTime = end_ns;
  event.device = core;
  event.resource = is_call ? kCallsLane : kOperatorsLane;
  event.addMetadataQuoted("simulated", "true");
}

class LaneSession final : public libkineto::IActivityProfilerSession {
 public:
  void start() override { recording_ = host.start_lanes(); }
  void stop() override {
    filled_lanes = buffer_.get();
    bool failed = recording_ < 0 || host.stop_lanes(recording_) < 0;
    filled_lanes = nullptr;
    if (failed) TORCH_WARN("torch.profiler has no lanes of the simulated NeuronCores: ", refusal);
    auto& span = buffer_->span;
    span.name = "simulated NeuronCores";
    for (auto& event : buffer_->activities) {
      span.startTime = span.opCount++ == 0 ? event->startTime : std::min(span.startTime, event->startTime);
      span.endTime = std::max(span.endTime, event->endTime);
    }
  }
  std::vector<std::string> errors() override { return {}; } // torch logs them at best, so `stop` warns
  void processTrace(libkineto::ActivityLogger& logger) override {
    std::set<int64_t> cores;
    for (auto& event : buffer_->activities) {
      if (cores.insert(event->device).second) name_lanes(logger, event->device, event->startTime);
      logger.handleGenericActivity(*event);
    }
  }
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

 private:
  static void name_lanes(libkineto::ActivityLogger& logger, int64_t core, int64_t at_ns) {
    auto name = "NeuronCore " + std::to_string(core) + ", simulated";
    logger.handleDeviceInfo({core, libkineto::kExceedMaxPid + core, name, name}, at_ns);
    logger.handleResourceInfo({kCallsLane, kCallsLane, core, "calls (simulated)"}, at_ns);
    logger.handleResourceInfo({kOperatorsLane, kOperatorsLane, core, "operators (simulated)"}, at_ns);
  }

  int64_t recording_ = -1;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
};

class LaneProfiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<libkineto::ActivityType>& availableActivities() const override { return types_; }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<libkineto::ActivityType>& types, const libkineto::Config&) override {
    if (types.count(libkineto::ActivityType::CONCURRENT_KERNEL) == 0) return nullptr;
    return std::make_unique<LaneSession>();
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t, int64_t, const std::set<libkineto::ActivityType>& types, const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  std::string name_ = "neuron";
  std::set<libkineto::ActivityType> types_ = {
      libkineto::ActivityType::CONCURRENT_KERNEL, libkineto::ActivityType::GPU_USER_ANNOTATION};
};

inline void register_lanes() {
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory(
      [] { return std::make_unique<LaneProfiler>(); });
}

} // namespace neuron
