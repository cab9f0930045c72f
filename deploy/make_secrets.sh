#!/bin/sh
# Makes the secrets of a deployment: for a trial, and to see what belongs where. It keeps what is there already.
#
#   sh deploy/make_secrets.sh DIRECTORY [NAME...]
#
#   DIRECTORY/redis/password       what planners say to Redis
#   DIRECTORY/redis/users.acl      what Redis knows of it: its digest, and what planners may do
#   DIRECTORY/tls/tls.crt, tls.key, ca.crt   a planner's certificate for the NAMEs, or addresses (dip-planner, localhost)
#   DIRECTORY/authority/           what signed it: keep it off the cluster
#   DIRECTORY/access/access.toml   who may call the planner: digests of tokens
#   DIRECTORY/trainer/token        what trainers say to the planner
set -eu
# Containers read these files as users of their own. What keeps others of this machine out is the directory.
umask 022

directory=${1:?usage: make_secrets.sh DIRECTORY [NAME...]}
shift
names=${*:-dip-planner localhost}

mkdir -p "$directory"
chmod 700 "$directory"
cd "$directory"
mkdir -p redis tls authority access trainer

digest() {
    openssl dgst -sha256 -r "$1" | cut -d' ' -f1
}

quietly() {
    said=$("$@" 2>&1) || {
        echo "$said" >&2
        exit 1
    }
}

secret() {
    [ -e "$1" ] || openssl rand -hex 32 | tr -d '\n' >"$1"
}

secret redis/password
[ -e redis/users.acl ] || cat >redis/users.acl <<EOF
user default reset on nopass +ping
user planner reset on #$(digest redis/password) ~dip:* &dip:* +@all -@admin -@dangerous +info
EOF

if ! [ -e tls/tls.crt ]; then
    key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    alternatives=
    for name in $names; do
        case $name in
            *:*) kind=IP ;;
            *[!0-9.]*) kind=DNS ;;
            *) kind=IP ;;
        esac
        alternatives=$alternatives${alternatives:+,}$kind:$name
    done
    # shellcheck disable=SC2086 # the key's options are several words
    quietly openssl req -x509 $key -keyout authority/ca.key -out authority/ca.crt -days 365 \
        -subj "/CN=dip-planner authority" -addext "keyUsage=critical,keyCertSign,cRLSign"
    # shellcheck disable=SC2086
    quietly openssl req $key -keyout tls/tls.key -out authority/request.pem -subj "/CN=dip-planner" \
        -addext "subjectAltName=$alternatives" -addext "extendedKeyUsage=serverAuth"
    quietly openssl x509 -req -in authority/request.pem -CA authority/ca.crt -CAkey authority/ca.key -CAcreateserial \
        -days 90 -copy_extensions copy -out tls/tls.crt
    rm authority/request.pem
    cp authority/ca.crt tls/ca.crt
    chmod 644 tls/tls.key
    chmod 600 authority/ca.key
fi

secret trainer/token
[ -e access/access.toml ] || cat >access/access.toml <<EOF
[[tokens]]
name = "trainers"
sha256 = "$(digest trainer/token)"
roles = ["trainer"]
jobs = ["*"]
EOF

echo "$directory: redis/, tls/, access/ and trainer/ are what the README's Secrets are made of"
