#!/bin/sh
# Puts the doubles on a simulated host, from a directory with the outputs: install.sh OUTPUTS
set -eu
outputs=$1
bin=/opt/rocm/bin
conf=/opt/rocm/share/rocm-validation-suite/conf
share=/usr/share/apiary-doubles
mkdir -p "$bin" "$conf/MI325X" "$share"
cp "$outputs"/*.txt "$share/"
cat > "$bin/all_reduce_perf" <<'END'
#!/bin/sh
# A double: nothing is reduced.
if [ -e /usr/share/apiary-doubles/slow ]; then
  sed 's/311.28/171.28/' /usr/share/apiary-doubles/rccl.txt
else
  cat /usr/share/apiary-doubles/rccl.txt
fi
END
cat > "$bin/TransferBench" <<'END'
#!/bin/sh
# A double: nothing is copied.
cat "/usr/share/apiary-doubles/transferbench-$1.txt"
END
cat > "$bin/rvs" <<'END'
#!/bin/sh
# A double: nothing is validated.
case $2 in
  */iet_*) cat /usr/share/apiary-doubles/rvs-iet.txt ;;
  */pebb_*) cat /usr/share/apiary-doubles/rvs-pebb.txt ;;
  *) exit 2 ;;
esac
END
chmod 0755 "$bin/all_reduce_perf" "$bin/TransferBench" "$bin/rvs"
touch "$conf/MI325X/iet_stress.conf" "$conf/MI325X/pebb_single.conf"
