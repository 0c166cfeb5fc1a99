# Completion of dxpu, dxpu-host, dxpu-box, dxpu-manager, dxpu-device and dxpu-render for bash.
#
# All that can be typed comes from the program that is called, by --help-options: lines of "verb
# NAME WORDS BRIEF" and "option VERB --NAME VALUE KIND HELP" with tabs between the fields.

# Without other programs: to start one takes longer than all that is done here.
_dxpu()
{
    local IFS=' ' word=${COMP_WORDS[COMP_CWORD]} list value='' verb='' first i next row
    local -a given=() rows fields names=() options=() offered=()
    local -A values=() words=() seen=()
    COMPREPLY=()
    list=$("${COMP_WORDS[0]}" --help-options 2>/dev/null) || return 0
    mapfile -t rows <<<"${list//$'\t'/$'\x1f'}" # which is not white space: a field may be empty
    for row in "${rows[@]}"; do
        IFS=$'\x1f' read -ra fields <<<"$row"
        if [[ ${fields[0]} == verb ]]; then
            names+=("${fields[1]}")
            words[=${fields[1]}]=${fields[2]}
        elif [[ ${fields[0]} == option ]]; then # with a VALUE unless it may be left out
            options+=("${fields[1]}=${fields[2]}")
            [[ ${fields[3]} == '['* || ${values[${fields[2]}]+known} ]] ||
                values[${fields[2]}]=${fields[3]}
        fi
    done
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        -*) # bash takes --name=value for three words
            value=${values[${COMP_WORDS[i]}]-}
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
        [[ $verb || ! ${words[=$i]+known} ]] || verb=$i
    done
    # the words of a verb when they begin with a choice: one|two|three
    if [[ ! $value && $verb && $word != -* && ${given[*]} == "$verb" ]]; then
        first=${words[=$verb]%% *}
        [[ $first != *'|'* ]] || value=$first
    fi
    if [[ $value == *'|'* ]]; then
        IFS='|' read -ra offered <<<"$value"
    elif [[ $value ]]; then
        [[ $value != FILE* ]] || mapfile -t COMPREPLY < <(compgen -f -- "$word")
    elif [[ $word == -* ]]; then
        for i in "${options[@]}"; do
            [[ ${i%%=*} != "$verb" && ${i%%=*} != '*' ]] || offered+=("${i#*=}")
        done
    elif [[ ! $verb && ${#names[@]} -gt 0 ]]; then
        first=${given[*]:+${given[*]} }
        for i in "${names[@]}"; do
            [[ $i == "$first"* ]] || continue
            i=${i#"$first"}
            i=${i%% *}
            [[ ! $i || ${seen[$i]+known} ]] || offered+=("$i")
            [[ ! $i ]] || seen[$i]=1
        done
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
    word=${word#[\"\']} # as typed, with a quote
    for i in "${offered[@]}"; do
        [[ $i != "$word"* ]] || COMPREPLY+=("$i")
    done
}

complete -o filenames -F _dxpu dxpu dxpu-host dxpu-box dxpu-manager dxpu-device dxpu-render
