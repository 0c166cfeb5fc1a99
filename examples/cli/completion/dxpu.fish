# Completion of dxpu, dxpu-host, dxpu-box, dxpu-manager, dxpu-device and dxpu-render for fish.
#
# All that can be typed comes from the program that is called, by --help-options: lines of "verb
# NAME WORDS BRIEF" and "option VERB --NAME VALUE KIND HELP" with tabs between the fields.

function __dxpu_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l rows ($words[1] --help-options 2>/dev/null)
    set -l given
    set -l value
    set -l skip 0
    for one in $words[2..-1]
        set value
        if test $skip = 1
            set skip 0
        else if string match -q -- '-*' $one
            set value (__dxpu_value $one $rows)
            test -z "$value"; or set skip 1
        else
            set -a given $one
        end
    end
    set -l verb ''
    for row in (string match -- 'verb*' $rows)
        set -l fields (string split \t -- $row)
        contains -- $fields[2] "$given[1]" "$given[1..2]"; or continue
        set verb $fields[2]
        # words that begin with a choice: one|two|three
        if test -z "$value" -a "$verb" = "$given"; and not string match -q -- '-*' $word
            string match -q -- '*|*' (string split ' ' -- "$fields[3]")[1]
            and set value (string split ' ' -- $fields[3])[1]
        end
    end
    set -l before ''
    if string match -q -- '--*=*' $word
        set before (string replace -r '=.*' '=' -- $word)
        set value (__dxpu_value (string replace -r '=.*' '' -- $word) $rows)
    end
    if string match -q -- '*|*' "$value"
        printf '%s\n' $before(string split '|' -- $value)
    else if test -n "$value"
        string match -q -- 'FILE*' $value; and __fish_complete_path $word
    else if string match -q -- '-*' $word
        for row in (string match -- 'option*' $rows)
            set -l fields (string split \t -- $row)
            contains -- "$fields[2]" "$verb" '*'; and printf '%s\t%s\n' $fields[3] $fields[6]
        end
    else if test -z "$verb"; and string match -q -- 'verb*' $rows
        for row in (string match -- 'verb*' $rows)
            set -l fields (string split \t -- $row)
            set -l parts (string split ' ' -- $fields[2])
            set -l count (count $given)
            if test $count -lt (count $parts)
                test $count = 0; or test "$parts[1..$count]" = "$given"; or continue
                printf '%s\t%s\n' $parts[(math $count + 1)] $fields[4]
            end
        end
    else
        __fish_complete_path $word
    end
end

# The VALUE of an option; nothing for a flag, or one that may be left out.
function __dxpu_value
    for row in $argv[2..-1]
        set -l fields (string split \t -- $row)
        if test "$fields[1]" = option -a "$fields[3]" = "$argv[1]"
            string match -q -- '[[]*' $fields[4]; or echo $fields[4]
            return
        end
    end
end

for one in dxpu dxpu-host dxpu-box dxpu-manager dxpu-device dxpu-render
    complete -c $one -f -a '(__dxpu_complete)'
end
