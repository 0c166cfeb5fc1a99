# Completion of dxpu, dxpu-host, dxpu-box, dxpu-manager, dxpu-device and dxpu-render for bash.
#
# All that can be typed comes from the program that is called, by --help-options: lines of "verb
# NAME WORDS BRIEF" and "option VERB --NAME VALUE KIND HELP" with tabs between the fields.

# The words of a verb when they begin with a choice: one|two|three.
_dxpu_words()
{
    awk -F'\t' -v name="$2" '$1 == "verb" && $2 == name { split($3, words, " ")
        if (index(words[1], "|")) print words[1]; exit }' <<<"$1"
}

# The VALUE of an option; nothing for a flag, or one that may be left out.
_dxpu_value()
{
    awk -F'\t' -v name="$2" '$1 == "option" && $3 == name && $4 !~ /^\[/ { print $4; exit }' \
        <<<"$1"
}

_dxpu()
{
    local IFS=$'\n' word=${COMP_WORDS[COMP_CWORD]} list value='' verb='' i next
    local -a given=()
    COMPREPLY=()
    list=$("${COMP_WORDS[0]}" --help-options 2>/dev/null) || return 0
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        -*) # bash takes --name=value for three words
            value=$(_dxpu_value "$list" "${COMP_WORDS[i]}")
            next=$((i + 1))
            if [[ ${COMP_WORDS[next]} == = ]]; then
                next=$((i + 2))
                [[ $next -le $COMP_CWORD ]] || word=
            fi
            if [[ $value || $next -eq $((i + 2)) ]]; then
                [[ $next -lt $COMP_CWORD ]] && value=
                i=$next
            fi
            ;;
        *) given+=("${COMP_WORDS[i]}") ;;
        esac
    done
    for i in "${given[0]} ${given[1]}" "${given[0]}"; do
        [[ $verb ]] || verb=$(awk -F'\t' -v name="$i" '$1 == "verb" && $2 == name { print $2 }' \
            <<<"$list")
    done
    if [[ ! $value && $verb && $word != -* && "${given[*]}" == "${verb// /$'\n'}" ]]; then
        value=$(_dxpu_words "$list" "$verb")
    fi
    if [[ $value == *'|'* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "${value//|/$'\n'}" -- "$word")
    elif [[ $value ]]; then
        [[ $value != FILE* ]] || mapfile -t COMPREPLY < <(compgen -f -- "$word")
    elif [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(awk -F'\t' -v verb="$verb" \
            '$1 == "option" && ($2 == verb || $2 == "*") { print $3 }' <<<"$list")" -- "$word")
    elif [[ ! $verb && $list == *$'verb\t'* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(awk -F'\t' -v given="${given[*]}" '
            $1 == "verb" && index($2 " ", given ? given " " : "") == 1 {
                split(substr($2, given ? length(given) + 2 : 1), rest, " ")
                if (rest[1] != "" && !seen[rest[1]]++) print rest[1]
            }' <<<"$list")" -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}

complete -o filenames -F _dxpu dxpu dxpu-host dxpu-box dxpu-manager dxpu-device dxpu-render
