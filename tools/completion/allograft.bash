# shellcheck shell=bash
# Completion of the command `allograft` for bash. The command itself says what a word may become
# (`allograft --complete`, see tools/line/command_line.h).

# The line of a program that allograft runs: its own completion, where there is any.
_allograft_program() {
    local first=$1 current=$2

    if declare -F _command_offset >/dev/null; then
        _command_offset "$first"
        return
    fi
    compopt -o filenames
    if ((first == COMP_CWORD)); then
        mapfile -t COMPREPLY < <(compgen -c -- "$current")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}

_allograft() {
    local before=${COMP_LINE:0:COMP_POINT} words=() starts=() i piece line
    local breaks=${COMP_WORDBREAKS//[^=:]/} word strip='' name kind

    # Bash ends words at = and :, too; here they are whole again. The last one goes up to the cursor.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        piece=${COMP_WORDS[i]}
        if ((i == 0)) || [[ $before == [[:space:]]* ]]; then
            before=${before#"${before%%[![:space:]]*}"}
            words+=("")
            starts+=("$i")
        fi
        ((i < COMP_CWORD)) || piece=$before
        words[${#words[@]} - 1]+=$piece
        before=${before#"$piece"}
    done
    word=${words[${#words[@]} - 1]}
    # What stands before the last = or : is not replaced.
    [ -z "$breaks" ] || strip=${word%"${word##*["$breaks"]}"}

    COMPREPLY=()
    while IFS= read -r line; do
        kind=${line%% *} name=${line#* }
        case $line in
        :program*)
            _allograft_program "${starts[name + 1]}" "$word"
            return
            ;;
        :files* | :folders*)
            compopt -o filenames
            [ "$kind" = :files ] && kind=-f || kind=-d
            while IFS= read -r piece; do
                piece=$name$piece
                COMPREPLY+=("${piece#"$strip"}")
            done < <(compgen "$kind" -- "${word#"$name"}")
            ;;
        *)
            name=${line%%$'\t'*}
            COMPREPLY+=("${name#"$strip"}")
            case $name in
            *[=:]) compopt -o nospace ;;
            esac
            ;;
        esac
    done < <("$1" --complete "${words[@]:1}" 2>/dev/null)
}

complete -F _allograft allograft
