-- Sets the largest payload that grns.submit_task takes. $1 bytes
select grns.set_payload_bytes($1)
