# Bash completion of the program `tilefold`.

_tilefold_kernels() {
  tilefold info --json 2>/dev/null | sed -n '/"kernels"/,$ s/^ *"name": "\(.*\)",$/\1/p'
}

_tilefold_devices() {
  echo "auto cuda"
  tilefold info --json 2>/dev/null | sed -n 's/^ *"device": "\(.*\)",$/\1/p'
}

_tilefold() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local commands="demo attend check bench picture info"
  local mask="--causal --window --window-align --scale --empty-row-lse --kernel --threads --device"
  local inputs="--q-key --k-key --v-key --layout --dtype"
  local command="" word options
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case $word in
      demo | attend | check | bench | picture | info)
        command=$word
        break
        ;;
    esac
  done
  COMPREPLY=()
  case $previous in
    --causal) mapfile -t COMPREPLY < <(compgen -W "none top-left bottom-right" -- "$current") && return ;;
    --window-align) mapfile -t COMPREPLY < <(compgen -W "auto top-left bottom-right" -- "$current") && return ;;
    --empty-row-lse) mapfile -t COMPREPLY < <(compgen -W "+inf -inf" -- "$current") && return ;;
    --layout) mapfile -t COMPREPLY < <(compgen -W "bhnd bnhd" -- "$current") && return ;;
    --dtype) mapfile -t COMPREPLY < <(compgen -W "float32 float16 bfloat16" -- "$current") && return ;;
    --device) mapfile -t COMPREPLY < <(compgen -W "$(_tilefold_devices)" -- "$current") && return ;;
    --kernel) mapfile -t COMPREPLY < <(compgen -W "$(_tilefold_kernels)" -- "$current") && return ;;
    -o | --out | --lse | --sample | --csv | --json)
      if [[ $command != info ]]; then
        compopt -o default
        return
      fi
      ;;
    --window | --scale | --threads | --q-key | --k-key | --v-key | --head | --batch | --rows | --keys | --fuzz | \
      --seed | --max-seqlen | --case | --seqlens | --head-dims | --tokens | --hidden | --shape | --warm-ups | \
      --reps | --seconds)
      return
      ;;
  esac
  case $command in
    attend) options="--out --lse --explain $inputs $mask" ;;
    picture) options="--out --head --batch --rows --keys $inputs $mask" ;;
    check) options="--fuzz --seed --max-seqlen --case --dtype --device --kernel --threads --verbose" ;;
    bench)
      options="--seqlens --head-dims --tokens --hidden --shape --causal --dtype --device --kernel --threads"
      options+=" --warm-ups --reps --seconds --csv --json"
      ;;
    info) options="--kernels --json" ;;
    demo) options="--sample --out --device --threads --reps" ;;
    *) options="$commands --version" ;;
  esac
  if [[ $current == -* || $command == "" ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options --help" -- "$current")
  else
    compopt -o default
  fi
}

complete -F _tilefold tilefold
