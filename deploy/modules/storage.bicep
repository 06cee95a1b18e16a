// A Functions host's own storage, for keys and locks; where there are queues, also these. No key opens it.
param name string
param location string
param tags object

@description('Who owns its blobs: a Functions host, which makes containers of its own.')
param hosts string[]
param sku string

@allowed(['Enabled', 'Disabled'])
param publicNetworkAccess string

var storageBlobDataOwner = 'b7e6dc6d-f1e8-4753-8033-0f276bb0955b'

resource account 'Microsoft.Storage/storageAccounts@2024-01-01' = {
  name: name
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: {
    name: sku
  }
  properties: {
    allowSharedKeyAccess: false
    defaultToOAuthAuthentication: true
    allowBlobPublicAccess: false
    supportsHttpsTrafficOnly: true
    minimumTlsVersion: 'TLS1_2'
    publicNetworkAccess: publicNetworkAccess
    networkAcls: {
      bypass: 'AzureServices'
      defaultAction: publicNetworkAccess == 'Enabled' ? 'Allow' : 'Deny'
    }
  }
}

resource blobOwners 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principalId in hosts: {
  name: guid(account.id, principalId, storageBlobDataOwner)
  scope: account
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', storageBlobDataOwner)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}]

output queueEndpoint string = account.properties.primaryEndpoints.queue
output id string = account.id
output name string = account.name
