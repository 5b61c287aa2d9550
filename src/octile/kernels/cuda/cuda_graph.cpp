// SPDX-License-Identifier: Apache-2.0
// A sequence of calls captured into one CUDA graph and timed by events inside it.
#include "octile/kernels/cuda/cuda_graph.h"

#include "octile/core/format.h"

#include <utility>

namespace octile::cuda {
namespace {

// Stream, events and graph of one sequence. Everything is destroyed with it, whichever of them exist.
class GraphSequence final : public TimedSequence {
 public:
  GraphSequence(const DeviceContext& context, std::size_t calls) noexcept
      : context_(&context), driver_(context.driver), calls_(calls) {}
  ~GraphSequence() override {
    const CurrentContext current(*context_);
    const OutsideCapture outside(*driver_);
    if (stream_ != nullptr) {
      driver_->stream_synchronize(stream_);
    }
    if (exec_ != nullptr) {
      driver_->graph_exec_destroy(exec_);
    }
    for (CUevent event : {begin_, end_}) {
      if (event != nullptr) {
        driver_->event_destroy(event);
      }
    }
    if (stream_ != nullptr) {
      driver_->stream_destroy(stream_);
    }
  }
  GraphSequence(const GraphSequence&) = delete;
  GraphSequence& operator=(const GraphSequence&) = delete;

  Expected<void> capture(const std::vector<TimedCall>& calls) {
    const CurrentContext current(*context_);
    const OutsideCapture outside(*driver_);
    if (auto done = current.made(); !done) {
      return done;
    }
    if (auto done = check(driver_->stream_create(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"); !done) {
      return done;
    }
    for (CUevent* event : {&begin_, &end_}) {
      if (auto done = check(driver_->event_create(event, CU_EVENT_DEFAULT), "cuEventCreate"); !done) {
        return done;
      }
    }
    // Relaxed: a vendor's call may do harmless things of its own that stricter modes refuse.
    if (auto done = check(driver_->stream_begin_capture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
        !done) {
      return done;
    }
    Expected<void> recorded = record(calls);
    CUgraph graph = nullptr;
    // Ended also after a failure: the stream must leave capture mode.
    const CUresult ended = driver_->stream_end_capture(stream_, &graph);
    if (recorded) {
      recorded = check(ended, "cuStreamEndCapture");
    }
    if (recorded) {
      recorded = check(driver_->graph_instantiate(&exec_, graph, 0), "cuGraphInstantiate");
    }
    if (graph != nullptr) {
      driver_->graph_destroy(graph);
    }
    if (recorded) {
      recorded = check(driver_->graph_upload(exec_, stream_), "cuGraphUpload");
    }
    return recorded;
  }

  Expected<double> time_us() override {
    const CurrentContext current(*context_);
    if (auto done = current.made(); !done) {
      return done.error();
    }
    const OutsideCapture outside(*driver_);
    if (auto done = check(driver_->graph_launch(exec_, stream_), "cuGraphLaunch"); !done) {
      return done.error();
    }
    if (auto done = check(driver_->stream_synchronize(stream_), "running the captured calls"); !done) {
      return done.error();
    }
    float milliseconds = 0;
    if (auto done = check(driver_->event_elapsed_time(&milliseconds, begin_, end_), "cuEventElapsedTime"); !done) {
      return done.error();
    }
    return static_cast<double>(milliseconds) * 1000.0 / static_cast<double>(calls_);
  }

 private:
  Expected<void> record(const std::vector<TimedCall>& calls) {
    // External event records become nodes of the graph: they are taken on the device, where the graph begins and ends.
    if (auto done = check(driver_->event_record(begin_, stream_, CU_EVENT_RECORD_EXTERNAL), "cuEventRecord"); !done) {
      return done;
    }
    for (const TimedCall& call : calls) {
      if (auto done = call(stream_); !done) {
        return done;
      }
    }
    return check(driver_->event_record(end_, stream_, CU_EVENT_RECORD_EXTERNAL), "cuEventRecord");
  }

  Expected<void> check(CUresult result, const char* what) const {
    if (result != CUDA_SUCCESS) {
      return device_error(*context_, result, what);
    }
    return {};
  }

  const DeviceContext* context_;
  const Driver* driver_;
  std::size_t calls_;
  CUstream stream_ = nullptr;
  CUevent begin_ = nullptr;
  CUevent end_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

}  // namespace

Expected<std::unique_ptr<TimedSequence>> capture_sequence(const DeviceContext& context,
                                                          const std::vector<TimedCall>& calls) {
  if (calls.empty()) {
    return make_error(ErrorCode::invalid_argument, "a sequence to be timed needs at least one call");
  }
  auto sequence = std::make_unique<GraphSequence>(context, calls.size());
  if (auto captured = sequence->capture(calls); !captured) {
    return captured.error();
  }
  if (auto warm = sequence->time_us(); !warm) {
    return warm.error();
  }
  return std::unique_ptr<TimedSequence>(std::move(sequence));
}

}  // namespace octile::cuda
