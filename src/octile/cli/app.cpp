// SPDX-License-Identifier: Apache-2.0
// Every command and option, declared with CLI11: the one file that includes its header.
#include "octile/cli/app.h"

#include "octile/cli/args.h"
#include "octile/cli/commands.h"
#include "octile/cli/exit_status.h"
#include "octile/cli/file_arguments.h"
#include "octile/cli/output.h"
#include "octile/cli/parse.h"
#include "octile/core/env.h"
#include "octile/core/format.h"
#include "octile/core/nearest.h"
#include "octile/model/model.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <functional>
#include <limits>
#include <sstream>
#include <string_view>

namespace octile::cli {
namespace {

// What the chosen command does once everything is parsed.
using Action = std::function<int()>;

// An option whose text `parse` turns into a value; its error becomes the option's. `parse` is a template argument so that
// the callback fits into a std::function without allocating.
template <auto parse, class T>
CLI::Option* add_parsed(CLI::App& command, const char* name, T& target, const char* type, const char* description) {
  return command
      .add_option_function<std::string>(
          name,
          [&target, name](const std::string& text) {
            auto value = parse(text);
            if (!value) {
              throw CLI::ValidationError(name, value.error().message);
            }
            target = *std::move(value);
          },
          description)
      ->type_name(type);
}

Expected<std::int64_t> parse_dimension(std::string_view text) { return parse_positive(text, kMaxDimension); }
Expected<std::int64_t> parse_m(std::string_view text) { return parse_positive(text, kMaxM); }
Expected<std::int64_t> parse_sms(std::string_view text) { return parse_positive(text, kMaxSms); }
Expected<std::int64_t> parse_ranks(std::string_view text) { return parse_positive(text, kMaxTensorParallel); }
Expected<std::int64_t> parse_seed(std::string_view text) {
  return parse_positive(text, std::numeric_limits<std::int64_t>::max());
}

void add_json(CLI::App& command, JsonTarget& target, const char* what) {
  // Without a FILE the parser hands over the default string.
  command
      .add_option_function<std::string>(
          "--json", [&target](const std::string& text) { target = text; },
          format("Write {} as JSON to FILE, or to stdout in place of the text", what))
      ->type_name("FILE")
      ->expected(0, 1)
      ->default_str("-");
}

void add_shape(CLI::App& command, ShapeArgs& args) {
  command.add_option("--model", args.model, "A preset (qwen3-8b, ...) or the path of a Hugging Face config.json")
      ->type_name("MODEL");
  add_parsed<parse_ranks>(command, "--tp", args.tp, "T", "Tensor parallelism: the linears of one of T ranks (default 1)");
  add_parsed<parse_dimension>(command, "--n", args.n, "N", "In place of --model: output channels of one weight");
  add_parsed<parse_dimension>(command, "--k", args.k, "K", "In place of --model: reduction length of one weight");
}

void add_m_list(CLI::App& command, std::vector<std::int64_t>& m_list, const char* description, bool required) {
  add_parsed<parse_m_list>(command, "--m", m_list, "LIST", description)->required(required);
}

// `ids` are examples, the default first.
CLI::Option* add_device(CLI::App& command, std::string& device, const char* ids = "cpu (default), cuda:0") {
  return command.add_option("--device", device, format("The device, as `octile devices` names it: {}, ...", ids))
      ->type_name("ID");
}

// One of two: a device that is here, or the name of one ("A device", "A GPU") that need not be.
void add_device_or_name(CLI::App& command, std::string& device, const char* ids, std::string& name, const char* what) {
  CLI::Option* here = add_device(command, device, ids);
  command.add_option("--device-name", name, format("{} that need not be here, as in table file names", what))
      ->type_name("NAME")
      ->excludes(here);
}

void add_measuring(CLI::App& command, MeasureArgs& args) {
  add_shape(command, args.shape);
  add_device(command, args.device);
  add_parsed<parse_budget_s>(command, "--time-budget", args.time_budget_s, "TIME",
                             "Stop after this long: 90, 90s, 2m, 1h (default: no limit)");
  add_parsed<parse_seed>(command, "--seed", args.seed, "SEED", "Seed of the random data (default: fresh every run)");
}

void add_search_path(CLI::App& command, std::string& tables) {
  command
      .add_option("--tables", tables,
                  "Directories with tables, ':' between them, searched before OCTILE_TABLE_PATH and the user's own")
      ->type_name("DIR")
      ->check([](const std::string& list) {
        const auto checked = check_directories(list);
        return checked ? std::string() : checked.error().message;
      });
}

struct AllArgs {
  DevicesArgs devices;
  TuneArgs tune;
  BenchArgs bench;
  ReportArgs report;
  VerifyArgs verify;
  ExplainArgs explain;
  WarmupArgs warmup;
  TableLintArgs lint;
  TableShowArgs show;
  TableDiffArgs diff;
  TableMergeArgs merge;
  TableImportArgs import;
  TableAdoptArgs adopt;
  TableExportArgs export_;
  CacheArgs cache;
  EnvArgs env;
  CompletionArgs completion;
  std::string command_line;
  bool reads_environment = true;  // Whether a wrong environment variable must stop the command.
};

void add_devices(CLI::App& app, AllArgs& args, Action& action) {
  CLI::App* command = app.add_subcommand("devices", "Show every device, its kernels, and why one is not available");
  add_json(*command, args.devices.json, "the devices");
  command->callback([&] { action = [&] { return run_devices(args.devices); }; });
}

void add_scope(CLI::App& command, std::string& scope) {
  command
      .add_option("--scope", scope,
                  "linear (default): quantisation of the activations included on both sides; gemm: the product alone")
      ->type_name("{linear,gemm}")
      ->check(CLI::IsMember({"linear", "gemm"}).description(""));
}

CLI::Option* add_html(CLI::App& command, std::string& html, const char* description) {
  return command.add_option("--html", html, description)->type_name("FILE");
}

void add_pdl(CLI::App& command, std::string& pdl) {
  command
      .add_option(
          "--pdl", pdl,
          "Launch mode of our own kernels, GPUs from sm_90 on: full (default): in a chain with other linears; consume: "
          "behind the linear's own quantiser alone; off")
      ->type_name("{off,consume,full}")
      ->check(CLI::IsMember({"off", "consume", "full"}).description(""));
}

void add_accumulate(CLI::App& command, std::string& accumulate) {
  command
      .add_option(
          "--accumulate", accumulate,
          "Sums of a GPU's products: fast (default), as its tensor cores keep them; precise: promoted to fp32 as they "
          "grow. A CPU has one kind")
      ->type_name("{fast,precise}")
      ->check(CLI::IsMember({"fast", "precise"}).description(""));
}

void add_out_dtype(CLI::App& command, std::string& out_dtype) {
  command
      .add_option("--out-dtype", out_dtype, "Type of the outputs: bf16 (default), fp16, fp32. Each has tables of its own")
      ->type_name("{bf16,fp16,fp32}")
      ->check(CLI::IsMember({"bf16", "fp16", "fp32"}).description(""));
}

void add_max_sms(CLI::App& command, std::int64_t& max_sms) {
  add_parsed<parse_sms>(
      command, "--max-sms", max_sms, "COUNT",
      "Products keep to so many multiprocessors of a GPU, as beside a communication kernel (default: all)");
}

void add_layout(CLI::App& command, std::string& layout, const char* description) {
  command.add_option("--layout", layout, description)
      ->type_name("{row_major,slab64}")
      ->check(CLI::IsMember({"row_major", "slab64"}).description(""));
}

constexpr const char* kServedLayout =
    "Layout of a GPU's weights (default: of the table, else row_major); tables of another are "
    "not used";

void add_tune(CLI::App& app, AllArgs& args, Action& action) {
  CLI::App* command = app.add_subcommand("tune", "Measure which kernel is fastest for each M, prove it, write tables");
  add_measuring(*command, args.tune.measure);
  add_m_list(*command, args.tune.measure.m_list, "Numbers of tokens, as 1,4,16 (default on a CPU: powers of two up to 1024)",
             false);
  command->add_option("--tables", args.tune.measure.tables, "Directory to write to (default: the user's own tables)")
      ->type_name("DIR");
  add_scope(*command, args.tune.measure.scope);
  add_pdl(*command, args.tune.measure.pdl);
  add_accumulate(*command, args.tune.measure.accumulate);
  add_out_dtype(*command, args.tune.measure.out_dtype);
  add_max_sms(*command, args.tune.measure.max_sms);
  add_layout(
      *command, args.tune.measure.layout,
      "Layout of a GPU's weights: row_major (default), or slab64, which our own kernels on Hopper alone read: then no "
      "entry is the baseline's or a vendor's");
  command
      ->add_option(
          "--from-log", args.tune.from_log,
          "In place of --model and --m: tune what a service ran untuned, as OCTILE_UNTUNED_LOG recorded it in FILE, "
          "the dearest first")
      ->type_name("FILE");
  command
      ->add_option("--numerics", args.tune.numerics,
                   "baseline (default on sm_90): only kernels whose every bit is the baseline's; deterministic (default "
                   "elsewhere): the same bits run after run")
      ->type_name("{deterministic,baseline}")
      ->check(CLI::IsMember({"deterministic", "baseline"}).description(""));
  command->add_flag("--thorough", args.tune.thorough, "Every M up to 1024 and a sample above, more candidates and rounds");
  command->add_flag("--resume", args.tune.resume, "Go on where an interrupted run stopped");
  add_html(*command, args.tune.html, "Also write a report of every point as one HTML page");
  command
      ->add_option("--devices", args.tune.devices,
                   "In place of --device: several share the work, as cuda:0,cuda:1; all: every GPU, without one the CPU")
      ->type_name("LIST")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->excludes(command->get_option("--device"));
  add_parsed<parse_mpi_library>(
      *command, "--mpi", args.tune.mpi, "LIBRARY",
      "Over hosts, started by an MPI launcher: rank 0 tunes, every rank lends its devices; openmpi, "
      "mpich, or auto (default): whichever started the process")
      ->expected(0, 1)
      ->default_str(to_string(MpiLibrary::automatic));
  add_parsed<parse_shard>(*command, "--shard", args.tune.shard, "I/N",
                          "Measure the I-th of N shares of the points; `octile table merge` unites the tables of all");
  command->footer(
      "Points that do not fit the time budget get no entry and are listed.\n\n"
      "Examples:\n"
      "  octile tune --model qwen3-8b --time-budget 2m\n"
      "  octile tune --model ./config.json --tp 2 --m 1,2,4,8,16 --tables ./tables\n"
      "  octile tune --n 6144 --k 4096 --thorough\n"
      "  octile tune --from-log untuned.jsonl --time-budget 5m\n"
      "  mpirun -n 4 octile tune --mpi --devices all --model qwen3-8b --tables ./tables");
  command->callback([&] { action = [&] { return run_tune(args.tune, args.command_line); }; });
}

void add_bench(CLI::App& app, AllArgs& args, Action& action) {
  CLI::App* command =
      app.add_subcommand("bench", "Time baseline, best vendor kernel and Octile's choice side by side in one run");
  add_measuring(*command, args.bench.measure);
  add_m_list(*command, args.bench.measure.m_list,
             "Numbers of tokens, as 1,4,16 (default on a CPU: powers of two up to 1024)", false);
  CLI::Option* all_m = command->add_flag(
      "--all-m", args.bench.all_m,
      "Curves: every M up to 512, each sixteenth above, from coarse to fine as far as --time-budget goes; our own families "
      "alone are timed as well, and cliffs are listed. --m or --max-m restricts it");
  add_parsed<parse_m>(*command, "--max-m", args.bench.max_m, "M",
                      "With --all-m: the largest M (default 16384, on a CPU 2048)")
      ->needs(all_m)
      ->excludes(command->get_option("--m"));
  command
      ->add_option("--compare", args.bench.compare,
                   "Put published times beside the rows: a CSV file with columns N, K, M and one column NAME_us a kernel")
      ->type_name("FILE");
  add_search_path(*command, args.bench.measure.tables);
  add_scope(*command, args.bench.measure.scope);
  add_pdl(*command, args.bench.measure.pdl);
  add_accumulate(*command, args.bench.measure.accumulate);
  add_out_dtype(*command, args.bench.measure.out_dtype);
  add_max_sms(*command, args.bench.measure.max_sms);
  add_layout(*command, args.bench.measure.layout, kServedLayout);
  add_json(*command, args.bench.measure.json, "the rows");
  command->add_option("--csv", args.bench.csv, "Also write the rows as CSV")->type_name("FILE");
  add_html(*command, args.bench.html, "Also write a report with plots and tables as one HTML page");
  command
      ->add_option("--record", args.bench.record,
                   "Also write the rows, versions, commit and command line to bench/results/<device>/NAME.json")
      ->type_name("NAME")
      ->check([](const std::string& name) {
        const bool plain =
            !name.empty() && name.size() <= 100 && name.front() != '.' &&
            name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == std::string::npos;
        return plain ? std::string() : std::string("wanted a file name of letters, digits, '.', '_' and '-'");
      });
  command->footer(
      "Ratios are other / choice: above 1 Octile's choice is faster; in brackets the 95 % interval.\n\n"
      "Examples:\n"
      "  octile bench --model qwen3-8b --time-budget 1m\n"
      "  octile bench --model qwen3-8b --m 1,4,16,64,256 --tables ./tables --json report.json --csv report.csv\n"
      "  octile bench --model qwen3-8b --device cuda:0 --all-m --time-budget 20m --json curves.json --html curves.html");
  command->callback([&] { action = [&] { return run_bench(args.bench, args.command_line); }; });
}

void add_report(CLI::App& app, AllArgs& args, Action& action) {
  CLI::App* command = app.add_subcommand("report", "Show a recorded result as one HTML page, without measuring");
  command->add_option("FILE", args.report.file, "What `octile bench` wrote with --json or --record")
      ->type_name("FILE")
      ->required();
  add_html(*command, args.report.html, "The page to write")->required();
  command->footer(
      "Example:\n"
      "  octile report bench/results/NVIDIA_H200/bench_qwen3-8b.json --html report.html");
  command->callback([&] { action = [&] { return run_report(args.report); }; });
}

void add_verify(CLI::App& app, AllArgs& args, Action& action) {
  CLI::App* command = app.add_subcommand("verify", "Check numerics and timing of every table entry on this device");
  add_measuring(*command, args.verify.measure);
  add_search_path(*command, args.verify.measure.tables);
  add_accumulate(*command, args.verify.measure.accumulate);
  add_out_dtype(*command, args.verify.measure.out_dtype);
  add_layout(*command, args.verify.measure.layout, kServedLayout);
  add_json(*command, args.verify.measure.json, "the findings");
  command->add_flag("--all-m", args.verify.all_m,
                    "Every M up to 1024 and 200 above, each against the best choice known; lists cliffs");
  command->add_flag("--fix", args.verify.fix, "Tune again where a choice loses, and write what won into the tables");
  command->footer(
      "Without --model every table of the device is checked. Exit status 1 means that an entry is wrong, or slower than\n"
      "the baseline beyond doubt (upper end of the ratio's interval below 1), or with --all-m slower by more than 2 %\n"
      "than another choice that is known.\n\n"
      "Examples:\n"
      "  octile verify --tables ./tables --time-budget 5m\n"
      "  octile verify --tables ./tables --all-m --fix");
  command->callback([&] { action = [&] { return run_verify(args.verify, args.command_line); }; });
}

void add_explain(CLI::App& app, AllArgs& args, Action& action) {
  CLI::App* command = app.add_subcommand("explain", "Say which kernel serves an M, from which table entry, and why");
  add_shape(*command, args.explain.shape);
  add_m_list(*command, args.explain.m_list, "Numbers of tokens, as 1 or 1,4,16", true);
  add_device_or_name(*command, args.explain.device, "cpu (default), cuda:0", args.explain.device_name, "A device");
  add_search_path(*command, args.explain.tables);
  add_accumulate(*command, args.explain.accumulate);
  add_out_dtype(*command, args.explain.out_dtype);
  add_layout(*command, args.explain.layout, kServedLayout);
  add_max_sms(*command, args.explain.max_sms);
  add_json(*command, args.explain.json, "the explanation (a list where several are asked for)");
  command->footer(
      "Examples:\n"
      "  octile explain --model qwen3-8b --m 16\n"
      "  octile explain --n 4096 --k 4096 --m 1,384,3072 --device-name NVIDIA_L40S --json");
  command->callback([&] { action = [&] { return run_explain(args.explain); }; });
}

void add_warmup(CLI::App& app, AllArgs& args, Action& action) {
  CLI::App* command = app.add_subcommand("warmup", "Compile ahead the GPU kernels that a model's tables need");
  add_shape(*command, args.warmup.shape);
  add_device_or_name(*command, args.warmup.device, "cuda:0 (default), cuda:1", args.warmup.device_name, "A GPU");
  add_search_path(*command, args.warmup.tables);
  add_accumulate(*command, args.warmup.accumulate);
  add_out_dtype(*command, args.warmup.out_dtype);
  command
      ->add_option("--export", args.warmup.export_directory,
                   "Also write the kernels to DIR, for machines without NVRTC (OCTILE_CUBIN_PATH)")
      ->type_name("DIR");
  add_json(*command, args.warmup.json, "what was done");
  command->footer(
      "Examples:\n"
      "  octile warmup --model qwen3-8b\n"
      "  octile warmup --model qwen3-8b --device-name NVIDIA_H200 --export ./cubins");
  command->callback([&] { action = [&] { return run_warmup(args.warmup); }; });
}

Expected<std::int64_t> parse_megabytes(std::string_view text) { return parse_positive(text, 1'000'000); }

void add_cache(CLI::App& app, AllArgs& args, Action& action) {
  CLI::App* command = app.add_subcommand("cache", "Show the cache of compiled GPU kernels, make room in it or clear it");
  CLI::Option* clear = command->add_flag("--clear", args.cache.clear, "Remove every kernel");
  add_parsed<parse_megabytes>(*command, "--limit", args.cache.keep_mb, "MB",
                              "Remove the least recently used kernels until at most so many megabytes are left")
      ->excludes(clear);
  add_json(*command, args.cache.json, "what is there and what was removed");
  command->footer("Processes that use the cache meanwhile go on; what they miss is compiled anew.");
  command->callback([&] { action = [&] { return run_cache(args.cache); }; });
}

void add_files(CLI::App& command, std::vector<std::string>& files, const char* description) {
  command.add_option("FILE", files, description)->type_name("FILE")->required();
}

void add_table(CLI::App& app, AllArgs& args, Action& action) {
  CLI::App* table = app.add_subcommand("table", "Check, show, compare, merge and convert table files");
  table->require_subcommand(1);

  CLI::App* lint = table->add_subcommand("lint", "Report everything that is wrong with table files");
  add_files(*lint, args.lint.paths, "Table files, and directories that are searched for them");
  lint->add_option("--device-name", args.lint.device_name, "Also report tiles that do not fit this device's shared memory")
      ->type_name("NAME");
  add_json(*lint, args.lint.json, "the findings");
  lint->footer("After `table lint` the file of --json is given as --json=FILE.\n\nExample:\n  octile table lint tables/");
  lint->callback([&] { action = [&] { return run_table_lint(args.lint); }; });

  CLI::App* show = table->add_subcommand("show", "Print tables: keys, provenance, entries");
  add_files(*show, args.show.files, "Table files of either format");
  show->callback([&] { action = [&] { return run_table_show(args.show); }; });

  CLI::App* diff = table->add_subcommand("diff", "Compare two tables; exit status 1 where they differ");
  diff->add_option("LEFT", args.diff.left, "A table file")->type_name("FILE")->required();
  diff->add_option("RIGHT", args.diff.right, "Another")->type_name("FILE")->required();
  diff->callback([&] { action = [&] { return run_table_diff(args.diff); }; });

  CLI::App* merge = table->add_subcommand("merge", "Unite tables of one device, N and K, measured in several runs");
  add_files(*merge, args.merge.files, "Tables of Octile's own format, or directories: then those of each N and K");
  merge->add_option("--out", args.merge.out, "File, for directories directory, to write; tables that are there take part")
      ->type_name("FILE")
      ->required();
  merge->callback([&] { action = [&] { return run_table_merge(args.merge); }; });

  CLI::App* import = table->add_subcommand("import", "Convert tables of the field's format (Triton tiles) to Octile's own");
  add_files(*import, args.import.files, "Tables of the field's format");
  import->add_option("--out", args.import.out, "Directory to write to")->type_name("DIR")->required();
  import->add_flag(
      "--nearest", args.import.nearest,
      "Entries for the whole stretch that the nearest key serves, marked as inferred (default: the keys alone)");
  import->callback([&] { action = [&] { return run_table_import(args.import); }; });

  CLI::App* adopt =
      table->add_subcommand("adopt", "Take from a bench the vendor's algorithms that beat a table's choice beyond doubt");
  adopt->add_option("RECORD", args.adopt.record, "What `octile bench --json` or --record wrote")
      ->type_name("FILE")
      ->required();
  adopt->add_option("--tables", args.adopt.tables, "Directory of the tables that the bench was run with")
      ->type_name("DIR")
      ->required();
  adopt->callback([&] { action = [&] { return run_table_adopt(args.adopt); }; });

  CLI::App* export_ = table->add_subcommand("export", "Convert tables of Octile's own format for other loaders");
  add_files(*export_, args.export_.files, "Tables of Octile's own format");
  export_->add_option("--out", args.export_.out, "Directory to write to")->type_name("DIR")->required();
  export_->add_flag("--triton", args.export_.triton, "The field's format: what a Triton loader can run, null for the rest");
  export_->callback([&] { action = [&] { return run_table_export(args.export_); }; });
}

void add_env(CLI::App& app, AllArgs& args, Action& action) {
  CLI::App* command = app.add_subcommand("env", "Show every environment variable: value in force, where it came from");
  add_json(*command, args.env.json, "the variables");
  command->add_flag("--markdown", args.env.markdown, "As a page of documentation: declarations only");
  command->callback([&] { action = [&] { return run_env(args.env); }; });
}

void add_doctor(CLI::App& app, AllArgs& args, Action& action) {
  CLI::App* command =
      app.add_subcommand("doctor", "Write one text for a bug report: versions, devices, tables, settings, a self-test");
  command->footer(
      "Takes about 10 s; exit status 1 where a kernel is wrong. Nothing private is in it but paths.\n\n"
      "Example:\n"
      "  octile doctor > octile-doctor.txt");
  command->callback([&] {
    args.reads_environment = false;  // A wrong variable is what the text is to show.
    action = [] { return run_doctor(); };
  });
}

// An option's or a command's plain description. Groups without a name are hidden from help, and so from completion.
CommandInfo describe(const CLI::App& app) {
  CommandInfo info{app.get_name(), app.get_description(), {}, "", {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      info.positional = option->get_type_name();
      continue;
    }
    OptionInfo described{
        {}, "", option->get_expected_min() == 0 && option->get_expected_max() > 0, option->get_description()};
    for (const std::string& name : option->get_snames()) {
      described.names.push_back("-" + name);
    }
    for (const std::string& name : option->get_lnames()) {
      described.names.push_back("--" + name);
    }
    if (option->get_expected_max() > 0) {
      described.value = option->get_type_name();
    }
    info.options.push_back(std::move(described));
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    info.commands.push_back(describe(*command));
  }
  return info;
}

void add_completion(CLI::App& app, AllArgs& args, Action& action) {
  CLI::App* command = app.add_subcommand("completion", "Print a completion script for a shell");
  command->add_option("SHELL", args.completion.shell, "The shell")
      ->type_name("{bash,zsh,fish}")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}).description(""));
  command->footer(
      "Examples:\n"
      "  bash: octile completion bash > ~/.local/share/bash-completion/completions/octile\n"
      "  zsh:  octile completion zsh > ~/.zfunc/_octile   (a directory of $fpath)\n"
      "  fish: octile completion fish > ~/.config/fish/completions/octile.fish");
  command->callback([&] {
    // A shell that starts with a wrong variable set still gets its completion.
    args.reads_environment = false;
    action = [&] {
      const auto written = write_stdout(completion_script(describe(app), args.completion.shell));
      return written ? kDone : fail(written.error());
    };
  });
}

// Names with commas between them, in lines of at most 100 columns.
std::string wrapped(const std::vector<std::string>& names, std::string text) {
  std::size_t column = text.size();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string word = i + 1 < names.size() ? names[i] + "," : names[i] + ".";
    if (column + 1 + word.size() > 100) {
      text += "\n ";
      column = 1;
    }
    text += ' ';
    text += word;
    column += 1 + word.size();
  }
  return text;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const ModelPreset& preset : model_presets()) {
    names.emplace_back(preset.name);
  }
  return names;
}

// `table` commands take files: there "--json FILE" would overwrite the table that was meant to be read, so only
// "--json=FILE" names a file.
std::vector<std::string> arguments_of(int argc, char** argv) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  if (!arguments.empty() && arguments.front() == "table") {
    for (std::string& argument : arguments) {
      if (argument == "--") {
        break;
      }
      if (argument == "--json") {
        argument = "--json=-";
      }
    }
  }
  return arguments;
}

// For records of how a result came about: arguments in quotes where a shell would need them.
std::string command_line_of(int argc, char** argv) {
  std::string text = "octile";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const bool plain = !argument.empty() && argument.find_first_of(" \t\n\"'\\$`&|;<>()*?[]#~!{}") == std::string_view::npos;
    text += ' ';
    if (plain) {
      text += argument;
      continue;
    }
    text += '\'';
    for (const char c : argument) {
      text += c == '\'' ? "'\\''" : std::string(1, c);
    }
    text += '\'';
  }
  return text;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

// `wanted` is what stands where a command should, or empty.
int no_command(const std::vector<std::string>& names, const std::string& wanted) {
  std::string list;
  for (const std::string& name : names) {
    list += list.empty() ? "" : ", ";
    list += name;
  }
  const std::string nearest = nearest_name(wanted, names);
  return fail(make_error(ErrorCode::invalid_argument, "no command{}{}; commands: {} (octile --help explains them)",
                         wanted.empty() ? " given" : format(" \"{}\"", wanted),
                         nearest.empty() ? "" : format(" (did you mean {}?)", nearest), list));
}

int report(const CLI::App& app, const CLI::ParseError& error) {
  std::ostringstream out;
  std::ostringstream err;
  if (app.exit(error, out, err) == 0) {
    const auto written = write_stdout(out.str());
    return written ? kDone : fail(written.error());
  }
  return fail({ErrorCode::invalid_argument, std::string(error.what()) + " (--help shows what there is)"});
}

const CLI::App& chosen_command(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
  }
  return *command;
}

// What is wrong whatever the command: an empty value, as a shell's unset variable gives, and results that would replace
// what is read or each other.
Expected<void> check_arguments(const CLI::App& command) {
  FileArguments files;
  for (const CLI::Option* option : command.get_options([](const CLI::Option* given) { return given->count() > 0; })) {
    const std::string name = option->get_name();
    const std::string& type = option->get_type_name();
    const bool report = name == "--csv" || name == "--html";
    const bool written = report || name == "--json";
    // What --out of `table merge` names takes part in the result.
    const bool read = !written && name != "--out" && (type == "FILE" || type == "MODEL");
    for (const std::string& value : option->results()) {
      if (value.empty()) {
        return make_error(ErrorCode::invalid_argument, "{}: wanted {}, got an empty value", name, type);
      }
      if (value == "-" && report) {
        return make_error(ErrorCode::invalid_argument, "{}: wanted {}, got \"-\"; standard output is /dev/stdout", name,
                          type);
      }
      if (written || read) {
        (written ? files.written : files.read).push_back({name, value});
      }
    }
  }
  return check_distinct(files);
}

}  // namespace

int run_app(int argc, char** argv) {
  AllArgs args;
  args.command_line = command_line_of(argc, argv);
  Action action;
  CLI::App app(
      "FP8 linear layers for LLM inference: for every weight shape and number of tokens M, the kernel that was\n"
      "measured to be the fastest on this device.",
      "octile");
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", format("octile {}", OCTILE_VERSION), "Print the version");
  app.get_formatter()->label("SUBCOMMAND", "COMMAND");
  app.get_formatter()->label("Subcommands", "Commands");
  for (const auto add : {add_devices, add_tune, add_bench, add_report, add_verify, add_explain, add_warmup, add_cache,
                         add_table, add_env, add_doctor, add_completion}) {
    add(app, args, action);
  }
  // Last, since commands take over the footer that is there when they are added.
  app.footer(
      "Start with:\n"
      "  octile devices\n"
      "  octile tune  --model qwen3-8b --time-budget 2m\n"
      "  octile bench --model qwen3-8b --time-budget 1m\n\n"
      "`octile COMMAND --help` explains a command.\n" +
      wrapped(preset_names(), "Model presets:") +
      "\nResults go to stdout, progress and logs to stderr. Exit status: 0 done, 1 the work failed or a check\n"
      "found something, 2 the arguments or an environment variable were wrong.");

  std::vector<std::string> arguments = arguments_of(argc, argv);
  const std::vector<std::string> names = command_names(app);
  if (arguments.empty() ||
      (!arguments.front().starts_with('-') && std::find(names.begin(), names.end(), arguments.front()) == names.end())) {
    return no_command(names, arguments.empty() ? "" : arguments.front());
  }
  try {
    // CLI11 takes them last first.
    std::reverse(arguments.begin(), arguments.end());
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return report(app, error);
  }
  if (!action) {
    return no_command(names, "");
  }
  if (auto checked = check_arguments(chosen_command(app)); !checked) {
    return fail(checked.error());
  }
  if (args.reads_environment) {
    if (auto checked = env::check_all(); !checked) {
      return fail(checked.error());
    }
  }
  return action();
}

}  // namespace octile::cli
