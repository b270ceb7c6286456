// A command's options and arguments: parsing, and the text of --help.
#include "cli/command_line.h"

#include <fmt/core.h>
#include <getopt.h>

#include <algorithm>
#include <charconv>

namespace tilefold::cli {
namespace {

// The whole of `text` as a number; none if it is not one or does not fit.
template <typename T>
std::optional<T> parse_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end) return {};
  return value;
}

template <typename T>
T parse_in_range(std::string_view option, std::string_view text, const char* what, T least,
                 T most) {
  const std::optional<T> value = parse_number<T>(text);
  if (!value || !(*value >= least && *value <= most)) {
    throw UsageError(option,
                     fmt::format("'{}'; accepted: {} from {} to {}", text, what, least, most));
  }
  return *value;
}

}  // namespace

Command::Option& Command::declare(std::string_view names, std::string_view value_name,
                                  std::string help, std::function<void(std::string_view)> set) {
  Option option;
  const size_t comma = names.find(',');
  if (comma != std::string_view::npos) option.short_name = names.substr(0, comma);
  option.name = comma == std::string_view::npos ? names : names.substr(comma + 1);
  option.value_name = value_name;
  option.help = std::move(help);
  option.set = std::move(set);
  return options_.emplace_back(std::move(option));
}

void Command::flag(std::string_view names, bool* on, std::string help) {
  declare(names, "", std::move(help), [on](std::string_view) { *on = true; });
}

void Command::text(std::string_view names, std::string* value, std::string_view value_name,
                   std::string help) {
  const std::string name(names.substr(names.find(',') + 1));
  declare(names, value_name, std::move(help), [name, value](std::string_view text) {
    if (text.empty()) throw UsageError(name, "its value is empty");
    *value = text;
  });
}

void Command::texts(std::string_view names, std::vector<std::string>* values,
                    std::string_view value_name, std::string help, bool split) {
  const std::string name(names.substr(names.find(',') + 1));
  const auto add = [name, values](std::string_view text) {
    if (text.empty()) throw UsageError(name, "its value is empty");
    values->emplace_back(text);
  };
  const auto set = [values, split, add, is_default = true](std::string_view text) mutable {
    if (is_default) values->clear();
    is_default = false;
    for (size_t end; split && (end = text.find(',')) != std::string_view::npos;) {
      add(text.substr(0, end));
      text.remove_prefix(end + 1);
    }
    add(text);
  };
  declare(names, value_name, std::move(help), set).is_list = true;
}

template <typename T>
void Command::integer(std::string_view names, T* value, T least, T most, const std::string& help) {
  const std::string name(names);
  declare(names, "N", help, [=](std::string_view text) {
    *value = parse_in_range<T>(name, text, "an integer", least, most);
  });
}
template void Command::integer(std::string_view, int*, int, int, const std::string&);
template void Command::integer(std::string_view, int64_t*, int64_t, int64_t, const std::string&);
template void Command::integer(std::string_view, uint64_t*, uint64_t, uint64_t, const std::string&);

void Command::real(std::string_view names, double* value, double least, double most,
                   std::string help) {
  const std::string name(names);
  declare(names, "X", std::move(help), [=](std::string_view text) {
    *value = parse_in_range<double>(name, text, "a number", least, most);
  });
}

void Command::real(std::string_view names, std::optional<float>* value, std::string help) {
  const std::string name(names);
  declare(names, "X", std::move(help), [=](std::string_view text) {
    *value = parse_number<float>(text);
    if (!*value) throw UsageError(name, fmt::format("'{}'; accepted: a number", text));
  });
}

void Command::arguments(std::vector<std::string>* values, std::string_view value_name, size_t least,
                        size_t most, std::string help) {
  arguments_ = values;
  arguments_name_ = value_name;
  arguments_help_ = std::move(help);
  least_arguments_ = least;
  most_arguments_ = most;
}

Command::Option* Command::find(std::string_view name) {
  const auto at = std::find_if(options_.begin(), options_.end(), [&](const Option& option) {
    return name == option.name || name == option.short_name;
  });
  return at == options_.end() || name.empty() ? nullptr : &*at;
}

void Command::take_argument(std::string_view text) {
  if (arguments_ == nullptr) {
    throw UsageError(fmt::format("'{}'", text), name_ + " takes options only");
  }
  if (arguments_->size() == most_arguments_) {
    throw UsageError(fmt::format("'{}'", text),
                     fmt::format("one {} too many; accepted: {} to {}", arguments_name_,
                                 least_arguments_, most_arguments_));
  }
  arguments_->emplace_back(text);
}

bool Command::parse(std::span<char* const> arguments) {
  // What getopt_long returns for options_[i]: kFirst + i, or the letter of its short name.
  constexpr int kFirst = 256;
  constexpr int kArgument = 1;
  constexpr int kUnknown = '?';
  constexpr int kMissingValue = ':';
  std::string short_options = "-:h";
  std::vector<::option> long_options;
  for (size_t i = 0; i < options_.size(); ++i) {
    const bool is_flag = options_[i].value_name.empty();
    long_options.push_back({options_[i].name.c_str() + 2, is_flag ? no_argument : required_argument,
                            nullptr, kFirst + static_cast<int>(i)});
    if (options_[i].short_name.empty()) continue;
    short_options += options_[i].short_name.substr(1) + (is_flag ? "" : ":");
  }
  long_options.push_back({"help", no_argument, nullptr, 'h'});
  long_options.push_back({});
  const auto option_of = [&](int value) {
    if (value >= kFirst) return &options_[value - kFirst];
    return find(std::string{'-', static_cast<char>(value)});
  };

  std::vector<char*> words = {name_.data()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  words.push_back(nullptr);
  const auto num_words = static_cast<int>(words.size()) - 1;
  opterr = 0;
  optind = 0;  // begin anew
  int found;
  while ((found = getopt_long(num_words, words.data(), short_options.c_str(), long_options.data(),
                              nullptr)) != -1) {
    if (found == 'h') return false;
    if (found == kArgument) {
      take_argument(optarg);
      continue;
    }
    const bool is_wrong = found == kUnknown || found == kMissingValue;
    Option* const option = option_of(is_wrong ? optopt : found);
    const std::string_view word = words[optind - 1];
    const auto takes_no_value = [word](const std::string& name) {
      return UsageError(name,
                        fmt::format("'{}'; it takes no value", word.substr(word.find('=') + 1)));
    };
    if (found == kUnknown && optopt == 'h') throw takes_no_value("--help");
    if (option == nullptr) {
      throw UsageError(optopt != 0 ? std::string{'-', static_cast<char>(optopt)}
                                   : std::string(word.substr(0, word.find('='))),
                       name_ + " has no such option");
    }
    if (found == kUnknown) throw takes_no_value(option->name);
    if (found == kMissingValue) {
      throw UsageError(option->name, fmt::format("its value {} is missing", option->value_name));
    }
    if (option->times_given++ > 0 && !option->is_list) {
      throw UsageError(option->name, "given more than once");
    }
    option->set(option->value_name.empty() ? "" : optarg);
  }
  for (int i = optind; i < num_words; ++i) take_argument(words[i]);  // what follows "--"
  check_combination();
  return true;
}

void Command::check_combination() {
  if (arguments_ != nullptr && arguments_->size() < least_arguments_) {
    throw UsageError(arguments_name_, "it is needed: " + arguments_help_);
  }
  for (const Option& option : options_) {
    if (option.required && option.times_given == 0) throw UsageError(option.name, "it is needed");
    if (option.times_given == 0) continue;
    if (!option.needs.empty() && find(option.needs)->times_given == 0) {
      throw UsageError(option.name, "it goes with " + option.needs + " only");
    }
    if (!option.excludes.empty() && find(option.excludes)->times_given > 0) {
      throw UsageError(option.name, "it does not go with " + option.excludes);
    }
  }
}

std::string Command::help() const {
  constexpr size_t kHelpColumn = 24;
  const auto entry = [&](std::string left, const std::string& right) {
    left.resize(std::max(left.size() + 2, kHelpColumn), ' ');
    return "  " + left + right + "\n";
  };
  std::string usage = "tilefold " + name_ + " [OPTIONS]";
  if (arguments_ != nullptr) usage += " " + arguments_name_ + (most_arguments_ > 1 ? "..." : "");
  std::string text = summary_ + "\n\nUsage: " + usage + "\n";
  if (arguments_ != nullptr) text += "\n" + entry(arguments_name_, arguments_help_);
  text += "\nOptions:\n";
  for (const Option& option : options_) {
    std::string left = option.short_name.empty() ? "    " : option.short_name + ", ";
    left += option.name;
    if (!option.value_name.empty()) left += " " + option.value_name;
    text += entry(std::move(left), option.help + (option.required ? " (needed)" : ""));
  }
  text += entry("-h, --help", "Print this and exit");
  return text + "\n" + footer_ + "\n";
}

}  // namespace tilefold::cli
