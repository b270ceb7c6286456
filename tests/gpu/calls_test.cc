// How calls behave on every GPU row: streams, graphs, devices, threads, repetition, refusals.
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "gpu_test.h"

namespace tilefold::gpu_test {
namespace {

class CallTest : public RowTest {
 protected:
  // The row's problem that most tests here use: several tiles (of packed heads too: 64 rows for
  // each of three), a ragged end, causal.
  Case ordinary_case(uint64_t seed) const {
    Case c = served_case(193, 310, causal_if_served(TILEFOLD_CAUSAL_BOTTOM_RIGHT));
    c.batch = 2;
    c.heads = 6;
    c.heads_kv = 2;
    c.seed = seed;
    return c;
  }

  // More tiles than a GPU has multiprocessors, under a mask: rows whose CTAs count their tiles do
  // so here alone.
  Case many_tiles_case(uint64_t seed) const {
    Case c = base_case(GetParam(), 2, 310, causal_if_served(TILEFOLD_CAUSAL_BOTTOM_RIGHT));
    c.heads = 400;
    c.heads_kv = 2;
    c.seed = seed;
    return c;
  }

  Case case_of(bool many_tiles, uint64_t seed) const {
    return many_tiles ? many_tiles_case(seed) : ordinary_case(seed);
  }

  void check_replays(bool many_tiles);
  void check_two_threads(bool many_tiles);
  void check_repetitions(bool many_tiles);

  // True if the row serves the problem; counts either way.
  bool prepare(DeviceProblem* problem) {
    const tilefold_status status = problem->prepare();
    if (status == TILEFOLD_ERROR_UNSUPPORTED) return ++unserved_, false;
    ++served_;
    EXPECT_EQ(TILEFOLD_OK, status) << tilefold_last_error();
    EXPECT_EQ(cudaSuccess, cudaDeviceSynchronize());  // the uploads are on the default stream
    return status == TILEFOLD_OK;
  }

  static void expect_right(const Instance& instance, const std::string& what) {
    const reference::Result expected = reference::attention(*instance.q.dl(), *instance.k.dl(),
                                                            *instance.v.dl(), &instance.options);
    const reference::Comparison comparison =
        reference::compare(expected, *instance.o.dl(), instance.lse_dl());
    EXPECT_TRUE(comparison.ok) << what << ": " << comparison.message();
  }
};
TILEFOLD_GPU_ROWS(CallTest);

struct Stream {
  cudaStream_t handle = nullptr;
  Stream() { cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking); }
  ~Stream() { cudaStreamDestroy(handle); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
};

// One call, captured; `executable` is null where that failed.
struct CallGraph {
  cudaGraphExec_t executable = nullptr;

  CallGraph(DeviceProblem* problem, const Stream& stream) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaSuccess, cudaStreamBeginCapture(stream.handle, cudaStreamCaptureModeGlobal));
    const tilefold_status status = problem->forward(stream.handle);
    EXPECT_EQ(cudaSuccess, cudaStreamEndCapture(stream.handle, &graph));
    EXPECT_EQ(TILEFOLD_OK, status) << tilefold_last_error();
    EXPECT_EQ(cudaSuccess, cudaGraphInstantiate(&executable, graph, 0));
    EXPECT_EQ(cudaSuccess, cudaGraphDestroy(graph));
  }
  ~CallGraph() { cudaGraphExecDestroy(executable); }
  CallGraph(const CallGraph&) = delete;
  CallGraph& operator=(const CallGraph&) = delete;
};

TEST_P(CallTest, OrderedBehindASlowProducerOnTheCallersStream) {
  Instance instance = reference::make_instance(ordinary_case(1));
  Instance wrong = reference::make_instance(ordinary_case(2));
  DeviceProblem problem(wrong, GetParam().name.c_str());
  if (!prepare(&problem)) return;
  ASSERT_CUDA(cudaDeviceSynchronize());
  Stream stream;
  ASSERT_CUDA(cudaLaunchHostFunc(
      stream.handle, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(30)); },
      nullptr));
  problem.upload_inputs(instance, stream.handle);
  ASSERT_EQ(TILEFOLD_OK, problem.forward(stream.handle)) << tilefold_last_error();
  EXPECT_TRUE(problem.download(&instance, stream.handle));
  expect_right(instance, "behind a slow producer");
}

TEST_P(CallTest, DoesNotWaitForTheStream) {
  Instance instance = reference::make_instance(ordinary_case(3));
  DeviceProblem problem(instance, GetParam().name.c_str());
  if (!prepare(&problem)) return;
  ASSERT_EQ(TILEFOLD_OK, problem.forward(nullptr)) << tilefold_last_error();  // loads the kernel
  ASSERT_CUDA(cudaDeviceSynchronize());
  Stream stream;
  std::atomic<bool> released = false;
  ASSERT_CUDA(cudaLaunchHostFunc(
      stream.handle,
      [](void* flag) {
        while (!*static_cast<std::atomic<bool>*>(flag)) std::this_thread::yield();
      },
      &released));
  EXPECT_EQ(TILEFOLD_OK, problem.forward(stream.handle)) << tilefold_last_error();
  released = true;  // had the call waited, this line would not be reached
  EXPECT_TRUE(problem.download(&instance, stream.handle));
  expect_right(instance, "on a stream that was held up");
}

void CallTest::check_replays(bool many_tiles) {
  Instance instance = reference::make_instance(case_of(many_tiles, 4));
  DeviceProblem problem(instance, GetParam().name.c_str());
  if (!prepare(&problem)) return;
  Stream stream;
  const CallGraph graph(&problem, stream);
  ASSERT_NE(nullptr, graph.executable);
  for (uint64_t seed = 5; seed < 9; ++seed) {
    Instance other = reference::make_instance(case_of(many_tiles, seed));
    problem.upload_inputs(other, stream.handle);
    // No state is kept, after a call of its own with the same workspace nor after itself.
    ASSERT_CUDA(cudaGraphLaunch(graph.executable, stream.handle));
    ASSERT_EQ(TILEFOLD_OK, problem.forward(stream.handle)) << tilefold_last_error();
    ASSERT_CUDA(cudaGraphLaunch(graph.executable, stream.handle));
    problem.poison_outputs(other, stream.handle);
    ASSERT_CUDA(cudaGraphLaunch(graph.executable, stream.handle));
    EXPECT_TRUE(problem.download(&other, stream.handle));
    expect_right(other, "replay " + std::to_string(seed));
  }
}

TEST_P(CallTest, CapturedIntoAGraphAndReplayedWithOtherInputs) {
  check_replays(false);
  check_replays(true);
}

// Rows that hand their tiles out one by one count them in the workspace, which holds anything:
// bytes of the test's, what the call before left, or what a replay of the same launch did.
TEST_P(CallTest, TilesAreCountedAnewByEveryCallAndReplay) {
  // In two sections and of several row tiles a head, so that some are kept for the end; narrow,
  // since the reference takes its time.
  Case c = served_case(385, 385, causal_if_served(TILEFOLD_CAUSAL_TOP_LEFT));
  c.batch = 2;
  c.heads = 129;  // 258 in all: a section holds 256 at most
  c.heads_kv = 3;
  c.head_dim = c.head_dim_v = 16;
  c.seed = 45;
  Instance instance = reference::make_instance(c);
  DeviceProblem problem(instance, GetParam().name.c_str());
  if (!prepare(&problem)) return;
  if (problem.workspace_bytes == 0) {
    ASSERT_FALSE(GetParam().name.starts_with("sm90") && GetParam().name.ends_with("_masked"));
    GTEST_SKIP() << "the row counts no tiles";
  }
  Stream stream;
  ASSERT_EQ(TILEFOLD_OK, problem.forward(stream.handle)) << tilefold_last_error();
  ASSERT_TRUE(problem.download(&instance, stream.handle));
  expect_right(instance, "the first call");

  Instance again = reference::make_instance(c);
  const auto expect_same = [&](const char* what) {
    EXPECT_TRUE(problem.download(&again, stream.handle)) << what;
    EXPECT_TRUE(reference::same_bits(instance.o, again.o)) << what;
    EXPECT_TRUE(reference::same_bits(instance.lse, again.lse)) << what;
    problem.poison_outputs(again, stream.handle);
  };
  const auto fill_workspace = [&](int byte) {
    return cudaMemsetAsync(problem.workspace.data(), byte, problem.workspace_bytes, stream.handle);
  };
  problem.poison_outputs(again, stream.handle);
  for (const int byte : {0x00, 0xff, 0x3c}) {
    ASSERT_CUDA(fill_workspace(byte));
    ASSERT_EQ(TILEFOLD_OK, problem.forward(stream.handle)) << tilefold_last_error();
    expect_same("a call on a filled workspace");
    ASSERT_EQ(TILEFOLD_OK, problem.forward(stream.handle)) << tilefold_last_error();
    expect_same("a call on what the last one left");
  }
  const CallGraph graph(&problem, stream);
  ASSERT_NE(nullptr, graph.executable);
  for (int replay = 0; replay < 20; ++replay) {
    if (replay % 5 == 4) {
      ASSERT_CUDA(fill_workspace(replay));
    }
    ASSERT_CUDA(cudaGraphLaunch(graph.executable, stream.handle));
    expect_same("a replay");
  }
}

void CallTest::check_two_threads(bool many_tiles) {
  constexpr int kThreads = 2;
  constexpr int kCalls = 40;
  {
    Instance probe = reference::make_instance(case_of(many_tiles, 10));
    DeviceProblem problem(probe, GetParam().name.c_str());
    if (!prepare(&problem)) return;
  }
  std::vector<std::string> faults(kThreads);
  const auto work = [&](int index) {
    Case c = case_of(many_tiles, 20 + index);
    if (!many_tiles) c.seqlen_q -= 31 * index;
    if (index == 1) c.causal = causal_if_served(TILEFOLD_CAUSAL_TOP_LEFT);
    Instance instance = reference::make_instance(c);
    DeviceProblem problem(instance, GetParam().name.c_str());
    ASSERT_EQ(TILEFOLD_OK, problem.prepare()) << tilefold_last_error();
    Stream stream;
    ASSERT_CUDA(cudaDeviceSynchronize());
    Instance first = reference::make_instance(c);
    for (int call = 0; call < kCalls; ++call) {
      if (problem.forward(stream.handle) != TILEFOLD_OK) faults[index] = tilefold_last_error();
      if (!problem.download(&instance, stream.handle)) faults[index] = "stray writes";
      if (call == 0) {
        problem.download(&first, stream.handle);
        expect_right(first, "thread " + std::to_string(index));
      }
      if (!reference::same_bits(first.o, instance.o)) faults[index] = "other bits";
    }
  };
  std::vector<std::thread> threads;
  for (int index = 0; index < kThreads; ++index) threads.emplace_back(work, index);
  for (std::thread& thread : threads) thread.join();
  for (const std::string& fault : faults) EXPECT_EQ("", fault);
}

TEST_P(CallTest, TwoHostThreadsOnOneDevice) {
  check_two_threads(false);
  check_two_threads(true);
}

TEST_P(CallTest, RunsOnTheTensorsDeviceAndLeavesTheCurrentOne) {
  int count = 0;
  ASSERT_CUDA(cudaGetDeviceCount(&count));
  if (count < 2) GTEST_SKIP() << "one CUDA device here; this test needs two";
  Instance instance = reference::make_instance(ordinary_case(30));
  ASSERT_CUDA(cudaSetDevice(1));
  DeviceProblem problem(instance, GetParam().name.c_str());
  const bool serves = prepare(&problem);
  ASSERT_CUDA(cudaSetDevice(0));
  if (!serves) return;
  ASSERT_EQ(TILEFOLD_OK, problem.forward(nullptr)) << tilefold_last_error();
  int current = -1;
  ASSERT_CUDA(cudaGetDevice(&current));
  EXPECT_EQ(0, current);
  ASSERT_CUDA(cudaSetDevice(1));
  EXPECT_TRUE(problem.download(&instance, nullptr));
  ASSERT_CUDA(cudaSetDevice(0));
  expect_right(instance, "on device 1");
}

// Bits of the outputs, compared call by call while other streams keep the GPU busy with the row's
// own kernel on another problem.
void CallTest::check_repetitions(bool many_tiles) {
  constexpr int kRepetitions = 1000;
  constexpr int kBurst = 10;
  Instance instance = reference::make_instance(case_of(many_tiles, 40));
  DeviceProblem problem(instance, GetParam().name.c_str());
  if (!prepare(&problem)) return;
  Case load_case = case_of(many_tiles, 41);
  load_case.batch = 8;
  load_case.causal = TILEFOLD_CAUSAL_NONE;
  Instance load_instance = make_fast_instance(load_case);
  DeviceProblem load(load_instance, GetParam().name.c_str());
  const bool has_load = load.prepare() == TILEFOLD_OK;
  Stream stream;
  Stream load_stream;
  ASSERT_CUDA(cudaDeviceSynchronize());
  ASSERT_EQ(TILEFOLD_OK, problem.forward(stream.handle)) << tilefold_last_error();
  ASSERT_TRUE(problem.download(&instance, stream.handle));
  expect_right(instance, "the first of the repetitions");
  Instance again = reference::make_instance(case_of(many_tiles, 40));
  int different = 0;
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    if (has_load && repetition % kBurst == 0) {
      for (int i = 0; i < kBurst; ++i) {
        ASSERT_EQ(TILEFOLD_OK, load.forward(load_stream.handle)) << tilefold_last_error();
      }
    }
    ASSERT_EQ(TILEFOLD_OK, problem.forward(stream.handle)) << tilefold_last_error();
    ASSERT_TRUE(problem.download(&again, stream.handle));
    different += std::memcmp(again.o.memory().data(), instance.o.memory().data(),
                             again.o.memory().size()) != 0 ||
                 std::memcmp(again.lse.memory().data(), instance.lse.memory().data(),
                             again.lse.memory().size()) != 0;
  }
  EXPECT_EQ(0, different) << "of " << kRepetitions << " repetitions";
  ASSERT_CUDA(cudaDeviceSynchronize());
}

TEST_P(CallTest, AThousandRepetitionsUnderLoadGiveTheSameBits) {
  check_repetitions(false);
  check_repetitions(true);
}

// Small enough for racecheck: a tile that visits so many key blocks that every buffer is used
// again.
TEST_P(CallTest, SeveralKeyBlocksThroughEachBuffer) {
  const int causal = causal_if_served(TILEFOLD_CAUSAL_BOTTOM_RIGHT);
  Case c = base_case(GetParam(), 128, 500, causal);
  c.heads = 1;
  Instance instance = reference::make_instance(c);
  if (check(&instance, c.to_string())) return;
  check(base_case(GetParam(), 40, 500, causal));  // rows that take few queries
}

TEST_P(CallTest, IsTheKernelThatExplainNames) {
  Instance instance = reference::make_instance(ordinary_case(50));
  DeviceProblem problem(instance, GetParam().name.c_str());
  if (!prepare(&problem)) return;
  std::vector<char> text(1 << 16);
  ASSERT_EQ(TILEFOLD_OK,
            tilefold_explain(problem.q.dl(), problem.k.dl(), problem.v.dl(), problem.o.dl(),
                             problem.lse_dl(), &problem.options, text.data(), text.size(), nullptr))
      << tilefold_last_error();
  EXPECT_EQ(GetParam().name, std::string(text.data(), std::strcspn(text.data(), "\n")));
}

// A call that must be refused: with a sentence, with nothing enqueued, and with the outputs as they
// were.
class RefusalTest : public CallTest {
 protected:
  using Call = std::function<tilefold_status(DeviceProblem&, cudaStream_t)>;
  void expect_refused(const std::string& what, tilefold_status expected, const Call& call) {
    expect_refused(what, expected, ordinary_case(60), call);
  }
  void expect_refused(const std::string& what, tilefold_status expected, const Case& c,
                      const Call& call) {
    Instance instance = reference::make_instance(c);
    DeviceProblem problem(instance, GetParam().name.c_str());
    if (!prepare(&problem)) return;
    ASSERT_CUDA(cudaDeviceSynchronize());
    Stream stream;
    cudaGraph_t graph = nullptr;
    ASSERT_CUDA(cudaStreamBeginCapture(stream.handle, cudaStreamCaptureModeGlobal));
    const tilefold_status status = call(problem, stream.handle);
    const std::string sentence = tilefold_last_error();
    ASSERT_CUDA(cudaStreamEndCapture(stream.handle, &graph));
    EXPECT_EQ(expected, status) << what << ": " << sentence;
    EXPECT_GT(sentence.size(), 20u) << what;
    size_t num_nodes = 0;
    ASSERT_CUDA(cudaGraphGetNodes(graph, nullptr, &num_nodes));
    EXPECT_EQ(0u, num_nodes) << what << ": something was launched";
    ASSERT_CUDA(cudaGraphDestroy(graph));
    ASSERT_TRUE(problem.download(&instance, nullptr)) << what;
    EXPECT_TRUE(instance.o.untouched()) << what;
    EXPECT_TRUE(instance.lse.untouched()) << what;
  }
};
TILEFOLD_GPU_ROWS(RefusalTest);

tilefold_status plain_call(DeviceProblem& p, cudaStream_t stream) { return p.forward(stream); }

TEST_P(RefusalTest, UnsoundTensorsLaunchNothing) {
  const struct {
    const char* what;
    void (*spoil)(DeviceProblem&);
  } faults[] = {
      {"mixed dtypes",
       [](DeviceProblem& p) {
         p.k.dl()->dtype = {kDLInt, 16, 1};
       }},
      {"v of another dtype",
       [](DeviceProblem& p) {
         p.v.dl()->dtype =
             p.v.dl()->dtype.bits == 32 ? DLDataType{kDLFloat, 16, 1} : DLDataType{kDLFloat, 32, 1};
       }},
      {"lse of float16",
       [](DeviceProblem& p) {
         p.lse.dl()->dtype = {kDLFloat, 16, 1};
       }},
      {"k on the CPU",
       [](DeviceProblem& p) {
         p.k.dl()->device = {kDLCPU, 0};
       }},
      {"rank 3", [](DeviceProblem& p) { p.q.dl()->ndim = 3; }},
      {"negative extent", [](DeviceProblem& p) { p.q.dl()->shape[2] = -1; }},
      {"null data", [](DeviceProblem& p) { p.v.dl()->data = nullptr; }},
      {"o on q", [](DeviceProblem& p) { p.o.dl()->data = p.q.dl()->data; }},
      {"lse on o", [](DeviceProblem& p) { p.lse.dl()->data = p.o.dl()->data; }},
      {"o with stride 0", [](DeviceProblem& p) { p.o.dl()->strides[0] = 0; }},
      {"three query heads on two key heads",
       [](DeviceProblem& p) {
         p.q.dl()->shape[1] = 3;
         p.o.dl()->shape[1] = 3;
         p.lse.dl()->shape[1] = 3;
       }},
      {"k and v of different lengths", [](DeviceProblem& p) { p.v.dl()->shape[2] -= 1; }},
      {"a scale that is not finite",
       [](DeviceProblem& p) {
         p.options.has_scale = 1;
         p.options.scale = std::numeric_limits<float>::infinity();
       }},
      {"an unknown mask", [](DeviceProblem& p) { p.options.causal = 9; }},
      {"a window of -2", [](DeviceProblem& p) { p.options.window_left = -2; }},
      {"an unknown kernel", [](DeviceProblem& p) { p.options.kernel = "no_such_kernel"; }},
  };
  for (const auto& fault : faults) {
    expect_refused(fault.what, TILEFOLD_ERROR_INVALID_ARGUMENT,
                   [&](DeviceProblem& problem, cudaStream_t stream) {
                     fault.spoil(problem);
                     return plain_call(problem, stream);
                   });
  }
}

TEST_P(RefusalTest, ADeviceThatIsNotThereLaunchesNothing) {
  expect_refused("device 99", TILEFOLD_ERROR_DEVICE, [](DeviceProblem& p, cudaStream_t stream) {
    for (DeviceTensor* tensor : {&p.q, &p.k, &p.v, &p.o, &p.lse})
      tensor->dl()->device.device_id = 99;
    return plain_call(p, stream);
  });
}

TEST_P(RefusalTest, ADtypeOrHeadDimThatTheRowDoesNotServeLaunchesNothing) {
  expect_refused("another row's dtype", TILEFOLD_ERROR_UNSUPPORTED,
                 [&](DeviceProblem& p, cudaStream_t stream) {
                   // 16 bits either way, so that no extent or stride changes; float32 rows are
                   // given the first half of their bytes.
                   const DLDataType other = GetParam().dtype == DType::kFloat16
                                                ? DLDataType{kDLBfloat, 16, 1}
                                                : DLDataType{kDLFloat, 16, 1};
                   for (DeviceTensor* tensor : {&p.q, &p.k, &p.v, &p.o})
                     tensor->dl()->dtype = other;
                   return plain_call(p, stream);
                 });
}

TEST_P(RefusalTest, AWorkspaceTooSmallOrMisalignedLaunchesNothing) {
  // What makes rows ask for a workspace: so few tiles that their keys are split, and under a mask
  // more tiles than a GPU has multiprocessors.
  const Case few_tiles = base_case(GetParam(), 64, 1500);
  Case c;
  bool needed = false;
  for (const Case& candidate : {few_tiles, many_tiles_case(0)}) {
    if (needed) break;
    Instance probe = reference::make_instance(candidate);
    DeviceProblem problem(probe, GetParam().name.c_str());
    if (!prepare(&problem)) continue;
    c = candidate;
    needed = problem.workspace_bytes > 0;
  }
  if (!needed) GTEST_SKIP() << "the row needs no workspace";
  const auto call_with = [](DeviceProblem& p, cudaStream_t stream, char* at, size_t bytes) {
    return tilefold_forward(p.q.dl(), p.k.dl(), p.v.dl(), p.o.dl(), p.lse_dl(), &p.options, at,
                            bytes, stream);
  };
  expect_refused("no workspace", TILEFOLD_ERROR_WORKSPACE, c,
                 [&](DeviceProblem& p, cudaStream_t stream) {
                   return call_with(p, stream, nullptr, p.workspace_bytes);
                 });
  expect_refused("a byte too few", TILEFOLD_ERROR_WORKSPACE, c,
                 [&](DeviceProblem& p, cudaStream_t stream) {
                   return call_with(p, stream, p.workspace.data(), p.workspace_bytes - 1);
                 });
  expect_refused("misaligned", TILEFOLD_ERROR_WORKSPACE, c,
                 [&](DeviceProblem& p, cudaStream_t stream) {
                   return call_with(p, stream, p.workspace.data() + 128, p.workspace_bytes);
                 });
}

}  // namespace
}  // namespace tilefold::gpu_test
